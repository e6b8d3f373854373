"""The overlay `standalone`: no scheduler of ours, the agent chooses by the rings."""

from collections.abc import Iterator

import pytest

from tests.e2e import product, truth
from tests.e2e.cluster import Cluster
from tests.e2e.commands import until
from tests.e2e.namespaces import Namespace
from tests.e2e.places import EXTENDER_PORT
from tests.e2e.pods import READS, container, first_container, pod

_RINGS = ({0, 1, 2, 3}, {4, 5, 6, 7})


@pytest.fixture(scope="module")
def alone(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with agents alone; afterwards it has all of us again."""
    product.uninstall(cluster)
    cluster.use_extender("")
    product.install(cluster, "standalone")
    yield cluster
    product.uninstall(cluster, "standalone")
    cluster.use_extender(f"http://{cluster.address}:{EXTENDER_PORT}")
    product.install(cluster)


@pytest.fixture
def lonely(alone: Cluster, namespace: Namespace) -> Namespace:
    """A namespace of the test's own, where nobody of ours schedules."""
    return namespace


@pytest.mark.core("standalone")
def test_pods_get_chips_of_one_ring_without_a_scheduler_of_ours(
    alone: Cluster, lonely: Namespace
) -> None:
    for body in (
        pod("two", 2),
        pod("four", 4),
        pod("around", 1, nodeName=alone.node),
        pod("initial", 1, initContainers=[first_container()]),
    ):
        lonely.run(body)

    served = {
        each.name.removeprefix(f"{lonely}/"): set(each.chips)
        for each in truth.until_agreed(alone)
    }

    assert served["four"] in _RINGS
    assert sorted(map(len, served.values())) == [1, 1, 2, 4]


def test_a_pod_for_which_no_ring_has_room_is_told_so_and_runs(
    alone: Cluster, lonely: Namespace
) -> None:
    lonely.run(*(pod(f"one-{number}", 1) for number in range(8)))
    served = truth.until_agreed(alone)
    for each in served:
        if {*each.chips} & {2, 3, 6, 7}:
            lonely.delete(each.name.partition("/")[2])
    until(lambda: len(truth.node(alone).available) == 4, "four free", within_s=120)

    lonely.run(pod("apart", 4))

    apart = next(
        each for each in truth.until_agreed(alone) if each.name.endswith("/apart")
    )
    assert apart.chips == (2, 3, 6, 7)
    until(lambda: lonely.has_event("NpuChipsApart", "apart"), "told", within_s=120)


def test_a_pod_that_reads_its_annotation_is_refused_in_words(
    alone: Cluster, lonely: Namespace
) -> None:
    reader = container("main", 1, env=[READS])
    lonely.create(pod("reader", containers=[reader]))

    assert lonely.wait_rejected("reader") == (
        "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition "
        "desc = the pod takes ASCEND_VISIBLE_DEVICES from its annotation "
        "huawei.com/Ascend910, which only a scheduler writes in time: leave the "
        "variable out, the device plugin sets it, which is unexpected"
    )
