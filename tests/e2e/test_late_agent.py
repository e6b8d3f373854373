"""A pod that came to its node before the agent did: it runs, and without any chip."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE
from tests.e2e.faults import ours
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod

_SEEN_WITHIN_S = 120.0


@pytest.fixture
def never_seen(cluster: Cluster) -> Iterator[Cluster]:
    """A node whose kubelet has never heard of our resource; afterwards it has us."""
    product.uninstall(cluster)
    cluster.programs.kubelet.stop()
    (cluster.device_plugin_dir / "kubelet_internal_checkpoint").unlink()
    cluster.programs.kubelet.start()
    cluster.wait_node_ready()
    yield cluster
    product.install(cluster)


def test_a_pod_that_came_before_the_agent_is_named_and_its_claim_is_kept(
    namespace: Namespace, never_seen: Cluster
) -> None:
    cluster = never_seen
    early = pod("early", 2, nodeName=cluster.node)
    early["metadata"]["annotations"] = {
        RESOURCE: "Ascend910-4,Ascend910-5",
        "predicate-time": "1",
    }
    until(
        lambda: _is_made(namespace, early),
        "the API server has forgotten our policies",
        within_s=_SEEN_WITHIN_S,
    )
    status = namespace.wait_running("early").status
    container = status.container_statuses[0].container_id

    product.install(cluster)

    assert truth.mounted(cluster.container_pid(container)) == ((), ())
    _until_told(namespace)
    agent = ours.agent(cluster)
    until(
        lambda: agent.metrics()['ascend_agent_claims{state="without-chips"}'] == 1,
        "one claim of a pod without chips counted",
        within_s=_SEEN_WITHIN_S,
    )
    truth.wait_node(cluster, available=(0, 1, 2, 3, 6, 7), within_s=_SEEN_WITHIN_S)
    namespace.delete("early")
    truth.wait_node(cluster, available=tuple(range(8)), within_s=_SEEN_WITHIN_S)


def _is_made(namespace: Namespace, body: dict[str, Any]) -> bool:
    try:
        namespace.create(body)
    except ApiException as error:
        if "ValidatingAdmissionPolicy" not in str(error.body):
            raise
        return False
    return True


def _until_told(namespace: Namespace) -> None:
    told = (
        "container main runs without its huawei.com/Ascend910 devices: it was started "
        "before the device plugin had registered, or the kubelet has lost them; delete "
        "the pod to have it started again"
    )

    def texts() -> list[str]:
        return [each.message for each in namespace.events("NpuDevicesMissing")]

    until(
        lambda: texts() == [told],
        lambda: f"one event: {told}; there are {texts()}",
        within_s=_SEEN_WITHIN_S,
    )
