"""Manifests as kubectl renders them, and whether Kubernetes knows their fields."""

import ast
import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
import yaml

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")

ROOT = Path(__file__).parents[2]
DAEMONSET = ROOT / "daemonset"
RENDERED = ("base", *sorted(f"overlays/{p.name}" for p in DAEMONSET.glob("overlays/*")))

Object = dict[str, Any]

_ELEMENTS = re.compile(r"List\[(.+)\]|Dict\[str, (.+)\]")


def sources(program: str) -> Iterator[tuple[str, ast.Module]]:
    """(path below the root, syntax tree) of each module of a program."""
    for path in sorted((ROOT / program).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


@functools.cache
def objects(name: str) -> tuple[Object, ...]:
    """All objects of the base or of an overlay."""
    return kustomize(DAEMONSET / name)


class RefusedError(Exception):
    """What kubectl says of a folder of which it makes nothing."""


def kustomize(folder: Path) -> tuple[Object, ...]:
    """All objects that kubectl makes of a folder."""
    command = [str(KUBECTL), "kustomize", str(folder)]
    shown = subprocess.run(  # noqa: S603  # our own manifests
        command, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        raise RefusedError(shown.stderr)
    return tuple(yaml.safe_load_all(shown.stdout))


def of_kind(name: str, *kinds: str) -> dict[str, Object]:
    """{name: object} of some kinds."""
    found = [each for each in objects(name) if each["kind"] in kinds]
    return {each["metadata"]["name"]: each for each in found}


def pod_templates(name: str) -> dict[str, Object]:
    """{name of DaemonSet or Deployment: its pod template}."""
    found = of_kind(name, "DaemonSet", "Deployment")
    return {each: workload["spec"]["template"] for each, workload in found.items()}


def containers(name: str) -> dict[str, Object]:
    """{name of DaemonSet or Deployment: its one container}."""
    return {
        each: template["spec"]["containers"][0]
        for each, template in pod_templates(name).items()
    }


def unknown_fields(found: Object) -> list[str]:
    """Paths of fields that the official client's model of this kind lacks."""
    kind = f"V1{found['kind']}"
    return list(_unknown(found, kind, found["kind"]))


def _unknown(value: Any, type_name: str, at: str) -> Iterator[str]:
    if elements := _ELEMENTS.fullmatch(type_name):
        within = elements[1] or elements[2]
        pairs = enumerate(value) if elements[1] else value.items()
        for key, each in pairs:
            yield from _unknown(each, within, f"{at}[{key}]")
        return
    model = getattr(kubernetes.client, type_name, None)
    if model is None:  # str, int, object: nothing further inside
        return
    types = {
        wire: model.openapi_types[name] for name, wire in model.attribute_map.items()
    }
    for key, each in value.items():
        if key not in types:
            yield f"{at}.{key}"
        else:
            yield from _unknown(each, types[key], f"{at}.{key}")
