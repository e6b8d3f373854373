"""What ships, as somebody would install it: with the policies, and anywhere."""

import json
import os
from pathlib import Path

from tests.daemonset.rendered import DAEMONSET, RENDERED

#: {installation: its resources and its components}, below `daemonset`
INSTALLATIONS = {
    **{name: ((name,), ()) for name in RENDERED},
    "shadow": (("base/extender",), ("components/shadow",)),
}
#: {installation: its accounts that write which chips a pod has}
WRITERS = {name: {"ascend-agent", "ascend-extender"} for name in INSTALLATIONS} | {
    "overlays/standalone": {"ascend-agent"},
    "shadow": set[str](),
}
HOME, OTHER = "kube-system", "other"
#: {how it is put into a namespace: that namespace}; `below` moves it in a folder of
#: its own, and the folder above adds the policies
FORMS = {"home": HOME, "moved": OTHER, "below": OTHER}


def write(at: Path, installation: str, form: str) -> Path:
    """Write a kustomization of an installation with the policies; its folder."""
    resources, components = INSTALLATIONS[installation]
    policies = "components/policies"
    if form == "below":
        below = at / "below"
        _write(below, resources, components, namespace=OTHER)
        return _write(at, (below,), (policies,))
    namespace = OTHER if form == "moved" else ""
    return _write(at, resources, (*components, policies), namespace=namespace)


def write_with(at: Path, name: str, *components: str) -> Path:
    """Write a kustomization of an overlay and components; its folder."""
    return _write(at, (name,), tuple(f"components/{each}" for each in components))


def _write(
    at: Path,
    resources: tuple[str | Path, ...],
    components: tuple[str, ...],
    *,
    namespace: str = "",
) -> Path:
    at.mkdir(exist_ok=True)
    document: dict[str, object] = {
        "resources": [os.path.relpath(DAEMONSET / name, at) for name in resources],
        "components": [os.path.relpath(DAEMONSET / name, at) for name in components],
    } | ({"namespace": namespace} if namespace else {})
    (at / "kustomization.yaml").write_text(json.dumps(document), encoding="utf-8")
    return at
