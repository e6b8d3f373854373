"""The agent is rolled out while pods wait for their claims: all of them are served.

The kubelet handles one thing after the other, a pod that waits for its claim included.
So it is frozen while the test puts the events into their order: a pod with its claim,
the end of the agent's pod, and pods whose claims are not there yet. The first pod has
the agent know, when it is told to end, that the kubelet is asking.
"""

import time
import urllib.error
import urllib.request

from kubernetes.client import ApiClient, CoreV1Api

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod

_ROLLOUTS = 4
#: Pods of each rollout, with a chip each.
_PODS = 5
#: Below the second for which the agent waits for a claim.
_STOPPING_WITHIN_S = 0.5
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_no_pod_that_waits_for_its_claim_is_rejected_by_a_rollout(
    cluster: Cluster, namespace: Namespace
) -> None:
    agent = _as_agent(cluster)
    rejected: list[str] = []
    for number in range(_ROLLOUTS):
        names = [f"waits-{number}-{chip}" for chip in range(_PODS)]
        _roll_out(cluster, namespace, agent, names)
        until(
            lambda: all(_phase(namespace, name) != "Pending" for name in names),  # noqa: B023
            "each pod runs, or is rejected",
            within_s=120,
        )
        found = [namespace.pod(name) for name in names]
        rejected += [p.status.message for p in found if p.status.phase == "Failed"]
        product.wait_rolled_out(cluster)
        truth.until_agreed(cluster)
        for name in names:
            namespace.delete(name)
        namespace.wait_empty()
        truth.wait_node(cluster, available=tuple(range(8)), within_s=120)

    assert rejected == []


def _roll_out(
    cluster: Cluster, namespace: Namespace, agent: CoreV1Api, names: list[str]
) -> None:
    """Begin a rollout, with pods that the kubelet admits while the agent ends."""
    first, *others = names
    page = f"{ours.agent(cluster).url()}/readyz"
    before = _agent_pod(cluster)
    kubelet = cluster.programs.kubelet
    kubelet.freeze()
    try:
        namespace.create(pod(first, 1, nodeName=cluster.node))
        _claim(agent, namespace, first, 0)
        cluster.kubectl(
            "rollout", "restart", "daemonset/ascend-agent", "-n", product.NAMESPACE
        )
        until(
            lambda: _agent_pod(cluster)[0] == before[0] and _agent_pod(cluster)[1],
            "the agent's pod told to end",
            within_s=60,
            every_s=0.05,
        )
        for name in others:
            namespace.create(pod(name, 1, nodeName=cluster.node))
    finally:
        kubelet.thaw()
    end = time.monotonic() + _STOPPING_WITHIN_S
    while time.monotonic() < end and _is_ready(page):
        time.sleep(0.01)
    for chip, name in enumerate(others, 1):
        _claim(agent, namespace, name, chip)


def _as_agent(cluster: Cluster) -> CoreV1Api:
    """The node's agent, which the policies let write claims: they come late here."""
    client = ApiClient(cluster.client.configuration)
    account = f"system:serviceaccount:{product.NAMESPACE}:ascend-agent"
    node = "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"
    for name, value in {"Impersonate-User": account, node: cluster.node}.items():
        client.set_default_header(name, value)  # type: ignore[no-untyped-call]
    return CoreV1Api(client)


def _claim(agent: CoreV1Api, namespace: Namespace, name: str, chip: int) -> None:
    """Write a pod's claim as the extender does with its bind."""
    claim = {RESOURCE: f"Ascend910-{chip}", "predicate-time": str(time.time_ns())}
    agent.patch_namespaced_pod(
        name, namespace.name, {"metadata": {"annotations": claim}}
    )


def _agent_pod(cluster: Cluster) -> tuple[str, bool]:
    """Name of the agent's oldest pod, and whether it has been told to end."""
    found = cluster.core.list_namespaced_pod(
        product.NAMESPACE, label_selector="app.kubernetes.io/name=ascend-agent"
    ).items
    oldest = min(found, key=lambda each: each.metadata.creation_timestamp)
    return oldest.metadata.name, oldest.metadata.deletion_timestamp is not None


def _is_ready(page: str) -> bool:
    try:
        with _NO_PROXY.open(page, timeout=1):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _phase(namespace: Namespace, name: str) -> str:
    return str(namespace.pod(name).status.phase)
