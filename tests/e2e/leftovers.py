"""What of ours is in a cluster, whoever was to take it away."""

import re
import shlex

from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.places import REPOSITORY

_PAGE = REPOSITORY / "docs" / "install.md"
_KINDS = (
    "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,"
    "configmaps,services,deployments,daemonsets,pods,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)
#: What the garbage collector takes to notice that an owner has gone.
_COLLECTED_WITHIN_S = 120.0


def found(cluster: Cluster) -> list[str]:
    """Objects of ours, and our marks on the node.

    Waits for the node's ConfigMap, which nobody deletes but the garbage collector.
    """
    until(
        lambda: "mindx-dl" not in cluster.kubectl("get", "cm", "-A", "-o", "name"),
        "the ConfigMap gone with its owner",
        within_s=_COLLECTED_WITHIN_S,
    )
    names = cluster.kubectl("get", _KINDS, "-A", "-o", "name").split()
    return [
        *(name for name in names if "ascend" in name or "mindx" in name),
        *marks(cluster),
    ]


def marks(cluster: Cluster) -> list[str]:
    """Labels and annotations of ours on the node."""
    meta = cluster.core.read_node(cluster.node).metadata
    return [
        key
        for key in [*(meta.labels or {}), *(meta.annotations or {})]
        if re.search(r"ascend|npu|accelerator|servertype|baseDevice", key)
    ]


def take_marks_off(cluster: Cluster) -> None:
    """Do what docs/install.md says about them."""
    page = _PAGE.read_text(encoding="utf-8")
    for command in re.findall(r"^\$ kubectl (\w+ nodes .*-)$", page, re.MULTILINE):
        cluster.kubectl(*shlex.split(command))
