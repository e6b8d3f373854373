"""Which components go with which overlay: the table of docs/install.md, and kubectl.

A pair either renders, refers to nothing that is not there, and each change of the
component has an effect; or kubectl refuses it and names what is missing.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.settings import Settings
from service import settings
from tests.daemonset import installations
from tests.daemonset.rendered import (
    DAEMONSET,
    ROOT,
    Object,
    RefusedError,
    kustomize,
    needs_kubectl,
)

pytestmark = needs_kubectl

COMPONENTS = sorted(each.name for each in DAEMONSET.glob("components/*"))
OVERLAYS = (
    "base/extender",
    *sorted(f"overlays/{each.name}" for each in DAEMONSET.glob("overlays/*")),
)
#: The overlay that all components can be added to.
WITH_ALL = "overlays/second-scheduler"
#: Comes with every cluster, or with Volcano.
BUILT_IN = {
    "system:kube-scheduler",
    "system:volume-scheduler",
    "extension-apiserver-authentication-reader",
}
#: How kubectl says that an object is not there to be changed, or is there twice.
REASONS = (
    r"no resource matches strategic merge patch \\+\"[A-Za-z.0-9]+/ascend-",
    r"Kind:\\+\"ConfigMap\\+\".*Name:\\+\"ascend-.*exists",
)
#: What only whoever installs can put in: labels of the pods of their scheduler.
SCHEDULER = "pods of NetworkPolicy ascend-extender"


def table() -> dict[tuple[str, str], str]:
    """{(component, overlay): cell} of the page."""
    page = (ROOT / "docs" / "install.md").read_text()
    section = page.partition("\n### Components\n")[2].partition("\n#")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    columns = [each.strip("`") for each in rows[0][2:]]
    return {
        (row[0].strip("`"), column): cell
        for row in rows[2:]
        for column, cell in zip(columns, row[2:], strict=True)
    }


def pod_templates(found: Iterable[Object]) -> list[Object]:
    """Templates of all pods."""
    kinds = "Deployment", "DaemonSet"
    return [each["spec"]["template"] for each in found if each["kind"] in kinds]


def names(found: Iterable[Object], *kinds: str) -> set[str]:
    """Names of the objects of some kinds."""
    return {each["metadata"]["name"] for each in found if each["kind"] in kinds}


def missing(found: tuple[Object, ...]) -> Iterator[str]:
    """What these objects refer to and is not among them."""
    accounts, maps = names(found, "ServiceAccount"), names(found, "ConfigMap")
    policies = names(found, "ValidatingAdmissionPolicy")
    roles = names(found, "Role", "ClusterRole") | BUILT_IN
    for template in pod_templates(found):
        yield from {template["spec"]["serviceAccountName"]} - accounts
        volumes = template["spec"].get("volumes", ())
        yield from {v["configMap"]["name"] for v in volumes if "configMap" in v} - maps
    for each in found:
        match each["kind"]:
            case "RoleBinding" | "ClusterRoleBinding":
                yield from {each["roleRef"]["name"]} - roles
                yield from {subject["name"] for subject in each["subjects"]} - accounts
            case "ValidatingAdmissionPolicyBinding":
                yield from {each["spec"]["policyName"]} - policies
            case "Service" | "NetworkPolicy":
                for labels in selected(each):
                    if not any(
                        labels.items() <= template["metadata"]["labels"].items()
                        for template in pod_templates(found)
                    ):
                        yield f"pods of {each['kind']} {each['metadata']['name']}"
            case _:
                pass


def selected(found: Object) -> Iterator[dict[str, str]]:
    """Labels by which a Service or a NetworkPolicy chooses pods."""
    spec = found["spec"]
    if found["kind"] == "Service":
        yield spec["selector"]
        return
    yield spec["podSelector"]["matchLabels"]
    for rule in spec["ingress"]:
        for each in rule.get("from", ()):
            yield each["podSelector"]["matchLabels"]


def idle_changes(
    component: str, before: tuple[Object, ...], after: tuple[Object, ...]
) -> Iterator[str]:
    """Patches and resources of a component that change nothing."""
    folder = DAEMONSET / "components" / component
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())
    texts = [(folder / name).read_text() for name in found.get("resources", ())]
    for added in chain.from_iterable(map(yaml.safe_load_all, texts)):
        if {"kind": added["kind"], "name": added["metadata"]["name"]} not in [
            {"kind": each["kind"], "name": each["metadata"]["name"]} for each in after
        ]:
            yield f"{added['kind']} {added['metadata']['name']}"
    for patch in found.get("patches", ()):
        text = patch.get("patch") or (folder / patch["path"]).read_text()
        body = yaml.safe_load(text)
        target = patch.get("target") or {
            "kind": body["kind"],
            "name": body["metadata"]["name"],
        }
        changed = [
            each
            for each in after
            if each["kind"] == target["kind"]
            and re.fullmatch(target["name"], each["metadata"]["name"])
            and each not in before
        ]
        if not changed:
            yield f"{target['kind']} {target['name']}"


def extender_settings(found: Iterable[Object]) -> Settings | None:
    """What the extender is told; None where there is none."""
    for template in pod_templates(found):
        [container] = template["spec"]["containers"]
        if container["name"] == "extender":
            told = {
                each["name"]: each.get("value", "x")
                for each in container.get("env", ())
            }
            return settings.load(Settings, container["args"], told)
    return None


def is_asked(found: Iterable[Object]) -> bool:
    """Whether a scheduler that is installed as well asks the extender."""
    texts = [
        text
        for each in found
        if each["kind"] == "ConfigMap"
        for text in each["data"].values()
    ]
    return any("urlPrefix: http://ascend-extender." in text for text in texts)


@functools.cache
def plain(overlay: str) -> tuple[Object, ...]:
    """An overlay without a component."""
    return kustomize(DAEMONSET / overlay)


@pytest.mark.parametrize(
    "overlay",
    # each is a run of kubectl; one column tells of a component that renders no more
    [o if o == WITH_ALL else pytest.param(o, marks=pytest.mark.long) for o in OVERLAYS],
)
@pytest.mark.parametrize("component", COMPONENTS)
def test_the_page_says_which_go_together(
    component: str, overlay: str, tmp_path: Path
) -> None:
    cell = table()[component, overlay.removeprefix("overlays/")]

    folder = installations.write_with(tmp_path, overlay, component)
    if cell == "refused":
        with pytest.raises(RefusedError, match="|".join(REASONS)):
            kustomize(folder)
        return

    found = kustomize(folder)
    assert list(idle_changes(component, plain(overlay), found)) == []
    told = extender_settings(found)
    is_shadow_asked = told is not None and told.shadow and is_asked(found)
    lacking = list(missing(found))
    assert (is_shadow_asked, lacking) == {
        "yes": (False, []),
        "edit": (False, [SCHEDULER]),
        "no": (True, []),
    }[cell]


def test_the_table_has_all_pairs_and_no_others() -> None:
    columns = [each.removeprefix("overlays/") for each in OVERLAYS]

    assert table().keys() == {(row, col) for row in COMPONENTS for col in columns}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_shadow_may_only_look_with_any_overlay(overlay: str, tmp_path: Path) -> None:
    if table()["shadow", overlay.removeprefix("overlays/")] == "refused":
        return
    found = kustomize(installations.write_with(tmp_path, overlay, "shadow"))

    bound = {
        each["roleRef"]["name"]
        for each in found
        if each["kind"] == "ClusterRoleBinding"
        and each["subjects"][0]["name"] == "ascend-extender"
    }
    verbs = {
        verb
        for each in found
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound
        for rule in each["rules"]
        for verb in rule["verbs"]
    }
    assert (bool(bound), verbs) == (True, {"list", "watch"})


#: `shadow` decides nothing, so what others let the extender do has no effect beside it.
TOGETHER = [each for each in COMPONENTS if each != "shadow"]


def ordered(value: Any) -> Any:
    """A value in which the order of lists counts no more."""
    if isinstance(value, dict):
        return {key: ordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(ordered, value), key=json.dumps)
    return value


def test_components_go_together_in_any_order(tmp_path: Path) -> None:
    one, other = (
        kustomize(installations.write_with(tmp_path / name, WITH_ALL, *components))
        for name, components in (("a", TOGETHER), ("b", TOGETHER[::-1]))
    )

    assert ordered(list(one)) == ordered(list(other))
    assert list(missing(one)) == []


@pytest.mark.long
@pytest.mark.parametrize("component", TOGETHER)
def test_no_component_takes_anothers_changes_away(
    component: str, tmp_path: Path
) -> None:
    others = [each for each in TOGETHER if each != component]
    before, after = (
        kustomize(installations.write_with(tmp_path / name, WITH_ALL, *components))
        for name, components in (("a", others), ("b", [*others, component]))
    )

    assert list(idle_changes(component, before, after)) == []
