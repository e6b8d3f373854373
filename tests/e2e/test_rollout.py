"""After the rollout, the node offers its chips and says so in the contract's form."""

import hashlib
import json

import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.configurations import RESOURCE

_CONFIGMAP = "mindx-dl-deviceinfo-node1"


def test_the_node_offers_eight_chips(cluster: Cluster) -> None:
    product.wait_rolled_out(cluster)

    def offered() -> tuple[str, str]:
        status = cluster.core.read_node(cluster.node).status
        return status.capacity.get(RESOURCE), status.allocatable.get(RESOURCE)

    until(lambda: offered() == ("8", "8"), lambda: f"8: {offered()}", within_s=60)


@pytest.mark.core("format")
def test_kubectl_describe_shows_the_contract(cluster: Cluster) -> None:
    truth.until_agreed(cluster)  # that all chips are free, if the last test had some

    described = cluster.kubectl("describe", "cm", _CONFIGMAP, "-n", "kube-system")

    chips = ",".join(f"Ascend910-{i}" for i in range(8))
    assert "Labels:       mx-consumer-cim=true\n" in described
    assert f'{{"DeviceInfo":{{"DeviceList":{{"{RESOURCE}":"{chips}",' in described
    assert f'"{RESOURCE}-Unhealthy":""' in described
    assert "AscendAffinity:\n" in described


def test_the_check_code_is_the_hash_of_the_device_info(cluster: Cluster) -> None:
    text = cluster.report().data["DeviceInfoCfg"]

    # Cut out of the text as it stands: that is what a reader in Go would hash.
    inner = text.removeprefix('{"DeviceInfo":').split(',"SuperPodID"')[0]

    assert json.loads(text)["CheckCode"] == hashlib.sha256(inner.encode()).hexdigest()


def test_neither_agent_nor_extender_has_restarted(cluster: Cluster) -> None:
    pods = cluster.core.list_namespaced_pod(
        "kube-system", label_selector="app.kubernetes.io/part-of=ascend-affinity"
    ).items

    restarts = {
        pod.metadata.labels["app.kubernetes.io/name"]: each.restart_count
        for pod in pods
        for each in pod.status.container_statuses
    }
    assert restarts == {"ascend-agent": 0, "ascend-extender": 0}
