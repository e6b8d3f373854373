"""Pods under the stock scheduler get chips by the rules of their rings."""

import kubernetes.watch
import pytest

from tests.e2e import truth
from tests.e2e.configurations import RESOURCE
from tests.e2e.namespaces import Namespace
from tests.e2e.pods import pod

_RINGS = ({0, 1, 2, 3}, {4, 5, 6, 7})


@pytest.mark.core("ring")
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_pod_gets_its_chips_from_as_few_rings_as_possible(
    namespace: Namespace, count: int
) -> None:
    namespace.run(pod("a", count))

    [served] = truth.until_agreed(namespace.cluster)

    chips = set(served.chips)
    assert len(chips) == count
    assert sum(bool(chips & ring) for ring in _RINGS) == (2 if count == 8 else 1)


def test_a_ring_stays_whole_for_the_pod_that_needs_it(namespace: Namespace) -> None:
    for name, count in (("two", 2), ("one", 1), ("four", 4)):
        namespace.run(pod(name, count))

    chips = {
        served.name.removeprefix(f"{namespace}/"): set(served.chips)
        for served in truth.until_agreed(namespace.cluster)
    }

    assert chips["four"] in _RINGS
    assert chips["one"] | chips["two"] < next(
        ring for ring in _RINGS if ring != chips["four"]
    )
    assert len(chips["one"] | chips["two"]) == 3


def test_the_decision_is_on_the_pod_from_the_moment_of_binding(
    namespace: Namespace,
) -> None:
    namespace.create(pod("a", 2))

    watch = kubernetes.watch.Watch()  # type: ignore[no-untyped-call]
    events = watch.stream(  # type: ignore[no-untyped-call]
        namespace.cluster.core.list_namespaced_pod, namespace.name, timeout_seconds=180
    )
    seen = (event["object"] for event in events)
    bound = next((each for each in seen if each.spec.node_name), None)
    assert bound is not None, "not bound in time"

    notes = bound.metadata.annotations
    assert notes[RESOURCE] == "Ascend910-0,Ascend910-1"
    assert int(notes["predicate-time"]) > 0
    namespace.wait_running("a")


def test_chips_come_back_when_a_pod_is_gone(namespace: Namespace) -> None:
    namespace.run(pod("first", 8))
    namespace.create(pod("second", 8))

    namespace.delete("first")

    namespace.wait_running("second")
    [served] = truth.until_agreed(namespace.cluster)
    assert (served.name, served.chips) == (f"{namespace}/second", tuple(range(8)))


def test_a_pod_that_goes_around_the_scheduler_is_refused_in_words(
    namespace: Namespace,
) -> None:
    namespace.create(pod("a", 2, nodeName=namespace.cluster.node))

    assert namespace.wait_rejected("a") == (
        "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition "
        "desc = no pod on this node has a claim for 2 huawei.com/Ascend910: "
        "annotations huawei.com/Ascend910 and predicate-time are missing, so the pod "
        "did not come through the Ascend scheduler; do not set spec.nodeName, and name "
        "a scheduler that calls the Ascend extender in spec.schedulerName (on a node "
        "without such a scheduler the agent needs --mode standalone), which is "
        "unexpected"
    )
    namespace.run(pod("b", 8))
