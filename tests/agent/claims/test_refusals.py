"""What a person reads in `kubectl describe pod` when an Allocate is refused."""

from dataclasses import replace

import pytest

from agent.claims.events import AllocateAsked, Refused
from tests.agent.node import (
    app,
    current,
    ids,
    init,
    lost,
    pod,
    reading,
    running,
    standalone_node,
)

NO_CLAIM = (
    "no pod on this node has a claim for 2 huawei.com/Ascend910: annotations "
    "huawei.com/Ascend910 and predicate-time are missing, so the pod did not come "
    "through the Ascend scheduler; do not set spec.nodeName, and name a "
    "scheduler that calls the Ascend extender in spec.schedulerName (on a node "
    "without such a scheduler the agent needs --mode standalone)"
)
ELSEWHERE = (
    " chips that fit together are free on this node. "
    "A new pod in its place will be scheduled elsewhere"
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((), "none"),
        (("Ascend910-1", "Ascend910-1"), "Ascend910-1, Ascend910-1"),
        (("Ascend910-9", "Ascend910-1", "npu-1"), "Ascend910-9, npu-1"),
    ],
)
def test_ids_that_nobody_has_listed(asked: tuple[str, ...], found: str) -> None:
    (refused,) = current(pod("train", [0])).apply(AllocateAsked(asked, last_call=False))

    assert refused == Refused(
        "the kubelet asked for devices that this node does not have: expected "
        f"distinct ids from Ascend910-0 to Ascend910-7, found {found}"
    )


def test_nobody_has_a_claim() -> None:
    assert current(pod("one", [0])).refusal(0, 1) == NO_CLAIM


def test_nobody_is_known_to_have_a_claim_while_the_api_server_is_not_followed() -> None:
    asked = AllocateAsked(ids(0, 1), last_call=True, unseen_s=2.5)
    (refused,) = current(pod("one", [0])).apply(asked)

    assert refused == Refused(
        "the agent of this node has not been able to follow the API server for 3 s "
        "and knows no pod with a claim for 2 huawei.com/Ascend910, so the pod was "
        "probably bound meanwhile; a new pod in its place is served once the API "
        "server can be followed again"
    )


def test_a_pod_that_cannot_be_read_may_be_the_one_who_asks() -> None:
    spoilt = pod("b", [0], annotations={"predicate-time": "soon"})
    worse = pod("a", [0], annotations={"huawei.com/Ascend910": "Ascend910-0,"})

    text = current(spoilt, worse).refusal(0, 1)

    assert text == (
        "the claim of default/a: metadata.annotations['huawei.com/Ascend910'][1]: "
        "expected a chip from Ascend910-0 to Ascend910-7, found ''; let the scheduler "
        "write huawei.com/Ascend910 again"
    )


def test_one_that_has_gone_is_not_and_the_others_still_are() -> None:
    now = current(
        pod("a", [0], annotations={"predicate-time": "soon"}),
        pod("b", [0], annotations={"predicate-time": "late"}),
    )

    now.delete("a")
    one_left = now.refusal(0, 1)
    now.delete("b")

    assert one_left.startswith("the claim of default/b: ")
    assert now.refusal(0, 1) == NO_CLAIM


def test_one_that_has_ended_is_not() -> None:
    spoilt = pod("b", [0], annotations={"predicate-time": "soon"})
    now = current(spoilt)

    now.update(replace(spoilt, phase="Failed"))

    assert now.refusal(0, 1) == NO_CLAIM


def test_a_pod_that_can_be_read_again_is_no_longer_named() -> None:
    now = current(pod("b", [0], annotations={"predicate-time": "soon"}))

    now.update(pod("b", [0]))

    assert now.refusal(0, 1) == NO_CLAIM


def test_chips_of_a_claim_that_are_broken_held_and_in_use() -> None:
    now = current(
        pod("first", [1], 1),
        pod("train", [0, 1, 2, 3], 2),
        pod("four", [4, 5, 6, 7], 9, phase="Running"),
    )
    now.mounts(1)
    now.read_chips(unhealthy=0b10001, busy=0b1100)

    assert now.refusal(0, 2, 3, 6) == (
        "the chips chosen for this pod cannot be given to it: Ascend910-0 unhealthy; "
        "Ascend910-1 held by another pod; Ascend910-2,Ascend910-3 still used by a "
        "process; and no other 4" + ELSEWHERE
    )


def test_chips_of_a_claim_on_which_a_pod_has_left_processes() -> None:
    now = running(pod("before", [0, 1]), pod("four", [4, 5, 6, 7]))
    now.becomes("before", "Succeeded")
    now.shows("before")
    now.read_chips(busy=0b11)
    now.passes()
    now.update(pod("train", [0, 1, 2, 3], 5))

    assert now.refusal(0, 1, 2, 3) == (
        "the chips chosen for this pod cannot be given to it: Ascend910-0,Ascend910-1 "
        "still used by a process; and no other 4" + ELSEWHERE
    )


def test_chips_of_a_claim_that_its_pods_other_containers_have() -> None:
    needs = [init("prepare", 1), app("one", 1), app("two", 1)]
    now = current(
        pod("train", [0, 1], 1, containers=needs),
        pod("two", [2, 3], 8),
        pod("four", [4, 5, 6, 7], 9),
    )
    now.mounts_singly(0, 0)
    now.read_chips(unhealthy=0b10)

    assert now.refusal(1) == (
        "the chips chosen for this pod cannot be given to it: Ascend910-1 unhealthy; "
        "Ascend910-0 given to its other containers; and no other 2" + ELSEWHERE
    )


def test_several_containers_have_lost_what_they_had() -> None:
    now = lost(reading(pod("a", [0], 1)), reading(pod("b", [1], 2)))

    assert now.refusal(6) == (
        "2 running containers have lost their huawei.com/Ascend910 devices in the "
        "kubelet and it cannot be told which of them asks; delete their pods to have "
        "them started again"
    )


def test_nothing_is_free_where_nobody_schedules() -> None:
    now = standalone_node(pod("train", [0]))
    now.read_chips(unhealthy=0b1111, busy=0b1111_0000)

    assert now.refusal(0) == (
        "too few chips are free: chips that the kubelet counts as free are still "
        "used by a process, or unhealthy. A new pod in its place will be tried again"
    )


def test_a_pod_that_reads_its_annotation_where_nobody_writes_it() -> None:
    now = standalone_node(reading(pod("train", [0])))

    assert now.refusal(0) == (
        "the pod takes ASCEND_VISIBLE_DEVICES from its annotation "
        "huawei.com/Ascend910, which only a scheduler writes in time: leave the "
        "variable out, the device plugin sets it"
    )


def test_a_spoilt_pod_is_named_where_nobody_schedules_if_it_may_be_the_one() -> None:
    literal = replace(pod("train", [0]), problem="sets ASCEND_VISIBLE_DEVICES")
    needless = replace(pod("odd", [0]), problem="asks for half a chip", needs=())

    assert standalone_node(literal).refusal(0) == (
        "default/train: sets ASCEND_VISIBLE_DEVICES"
    )
    assert standalone_node(literal).mounts(0, 1) == (0, 1)
    assert (
        standalone_node(needless).refusal(0, 1) == "default/odd: asks for half a chip"
    )


def test_a_container_of_no_known_pod_is_served_where_nobody_schedules() -> None:
    now = standalone_node()

    waits = now.apply(AllocateAsked(ids(2, 3), last_call=False))

    assert not any(isinstance(effect, Refused) for effect in waits)
    assert now.mounts(2, 3) == (2, 3)
    (hold,) = now.ledger.holds.values()
    assert (hold.slot, hold.need) == ("fresh-1", 0)
    assert now.ledger.slots["fresh-1"].chips == 0b1100
