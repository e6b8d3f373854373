"""What `kubectl delete -k` deletes is ours, and nothing waits for what has gone."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.daemonset import installations
from tests.daemonset.rendered import (
    DAEMONSET,
    RENDERED,
    ROOT,
    Object,
    kustomize,
    needs_kubectl,
    objects,
)

COMPONENTS = sorted(path.name for path in DAEMONSET.glob("components/*"))

_ACCESS = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
AGENT = {f"{kind} ascend-agent" for kind in (*_ACCESS, "ServiceAccount", "DaemonSet")}
EXTENDER = {
    f"{kind} ascend-extender"
    for kind in (*_ACCESS, "ServiceAccount", "Deployment", "Service")
}
SCHEDULER = {
    *(f"{kind} ascend-scheduler" for kind in ("ServiceAccount", "Deployment")),
    *("Role ascend-scheduler", "RoleBinding ascend-scheduler"),
    "RoleBinding ascend-scheduler-authentication",
    "ClusterRoleBinding ascend-scheduler",
    "ClusterRoleBinding ascend-scheduler-volumes",
    "ConfigMap ascend-scheduler-configuration-…",
}
VOLCANO = {
    "ClusterRole ascend-extender-volcano",
    "ClusterRoleBinding ascend-extender-volcano",
}
#: {what was applied: all that would be deleted}
DELETED = {
    "base": AGENT | EXTENDER,
    "overlays/kube-scheduler": AGENT | EXTENDER,
    "overlays/second-scheduler": AGENT | EXTENDER | SCHEDULER,
    "overlays/simulated": AGENT | EXTENDER | {"ConfigMap ascend-simulated-npus"},
    "overlays/standalone": AGENT,
    "overlays/volcano": AGENT | EXTENDER | VOLCANO,
}


def named(found: Iterable[Object]) -> set[str]:
    """Kind and name of each; what kustomize makes of the contents is left out."""
    return {
        re.sub(r"-[0-9a-z]{10}$", "-…", f"{each['kind']} {each['metadata']['name']}")
        for each in found
    }


@needs_kubectl
@pytest.mark.parametrize("name", RENDERED)
def test_deleting_an_overlay_deletes_these_and_no_others(name: str) -> None:
    assert named(objects(name)) == DELETED[name]
    assert {each["metadata"].get("namespace", "") for each in objects(name)} == {
        "",
        "kube-system",
    }


@needs_kubectl
@pytest.mark.long
@pytest.mark.parametrize("component", COMPONENTS)
def test_with_a_component_only_ours_is_deleted(component: str, tmp_path: Path) -> None:
    folder = installations.write_with(tmp_path, "overlays/kube-scheduler", component)

    beside = named(kustomize(folder)) - DELETED["overlays/kube-scheduler"]

    kinds = {each.split()[0] for each in beside}
    assert kinds <= {
        *_ACCESS,
        *("ConfigMap", "NetworkPolicy"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
    assert [each for each in beside if not each.split()[1].startswith("ascend-")] == []


def test_schedulers_stop_asking_before_nobody_answers() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    section = page.partition("\n## Uninstall\n")[2].partition("\n## ")[0]
    before, deletion, _ = section.partition("$ kubectl delete -k ")

    assert deletion
    for told in (
        "--config=/etc/kubernetes/scheduler-configuration.yaml",
        "volcano-scheduler-configmap",
        "schedulerName: ascend-scheduler",
    ):
        assert told in before
