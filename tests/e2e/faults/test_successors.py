"""Standalone: the node is full, and each pod comes as soon as one has ended.

The kubelet and the driver tell of a pod's end on ways of their own: the driver's last
look may be from before it. What the driver shows are the real processes of the pods.
"""

import random  # noqa: TID251  # seeded: the same phases in every run
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.faults import library, ours
from tests.e2e.faults.library import FOLDER
from tests.e2e.namespaces import Namespace
from tests.e2e.places import EXTENDER_PORT
from tests.e2e.pods import container, pod

pytestmark = pytest.mark.faults

_COUNT = 52
_SUBSCRIBE, _NOT_SUPPORTED = "dcmi_subscribe_fault_event", -8255
#: So many at a time, each with its share of the chips.
_LANES = 4
_CHIPS = 8
#: Each writes down its process for each of its chips, by the number of the node.
_SAYS = """
for chip in ${ASCEND_VISIBLE_DEVICES//,/ }; do echo $$ >/pods/pid-$chip; done
sleep """


@pytest.fixture
def alone(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with agents alone, which ask a libdcmi that shows pods' processes."""
    product.uninstall(cluster)
    cluster.use_extender("")
    product.install(cluster, "standalone")
    with library.shown(cluster, "--mode=standalone") as machine:
        for card in range(_CHIPS):
            machine.say(card, 0, pids=f"@{FOLDER}/pid-{card}")
        # without events, chips are looked at each second: old news of all phases
        machine.tell(f"answer {_SUBSCRIBE} -1 -1 {_NOT_SUPPORTED}")
        ours.agent(cluster).kill()
        ours.agent(cluster).wait_ready()
        truth.wait_node(cluster, unhealthy=(), held=())
        yield cluster
    product.uninstall(cluster, "standalone")
    cluster.use_extender(f"http://{cluster.address}:{EXTENDER_PORT}")
    product.install(cluster)


def test_each_pod_gets_the_chips_of_the_one_before_it(
    alone: Cluster, namespace: Namespace
) -> None:
    def follow(lane: int) -> list[str]:
        chance = random.Random(lane)  # noqa: S311  # the phase of the driver's look
        messages = []
        for number in range(_COUNT // _LANES + 1):
            life_s = chance.uniform(0.0, 0.3)
            body = _taker(f"taker-{lane}-{number}", life_s, alone.node)
            namespace.create(body)
            messages.append(_end_of(namespace, body["metadata"]["name"]))
        return messages

    with ThreadPoolExecutor(_LANES) as threads:
        ends = [text for lane in threads.map(follow, range(_LANES)) for text in lane]

    assert len(ends) == _COUNT + _LANES
    assert [text for text in ends if text] == []


def _taker(name: str, life_s: float, node: str) -> dict[str, Any]:
    """A pod of its share of the chips, bound, whose process ends after this time."""
    main = container(
        *("main", _CHIPS // _LANES),
        command=["bash", "-c", f"{_SAYS}{life_s:.3f}"],
        volumeMounts=[{"name": "pods", "mountPath": "/pods"}],
    )
    pods = {"name": "pods", "hostPath": {"path": str(FOLDER), "type": "Directory"}}
    return pod(
        name,
        nodeName=node,
        hostPID=True,
        restartPolicy="Never",
        containers=[main],
        volumes=[pods],
    )


def _end_of(namespace: Namespace, name: str) -> str:
    """Wait until a pod has ended; return "", or what its user reads if it failed."""
    found: list[Any] = []

    def has_ended() -> bool:
        found[:] = [namespace.pod(name).status]
        return found[0].phase in {"Succeeded", "Failed"}

    until(has_ended, f"{name} ended", within_s=120, every_s=0.01)
    [status] = found
    failed = status.phase == "Failed"
    return f"{name}: {status.reason}: {status.message}" if failed else ""
