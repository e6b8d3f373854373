"""Evidence has a date: a look that began before a pod ended proves nothing after it."""

from dataclasses import replace
from itertools import permutations

import pytest

from agent.claims import occupancy
from agent.claims.events import (
    AllocateAsked,
    AwaitLook,
    ChipsRead,
    ChipsUnreadable,
    Effect,
    Granted,
    PodDeleted,
    Preferred,
    Refused,
    StrayProcessesRead,
)
from scheduler_core.node import chips as chip_sets
from tests.agent.node import (
    EVERY_ID,
    NodeLedger,
    confirmed,
    current,
    ids,
    pod,
    restarted,
    standalone_node,
)

ALL = 0b1111_1111


def ended() -> NodeLedger:
    """A node where a pod has just ended, whose process the last look had seen."""
    now = confirmed()
    now.read_chips(busy=0b1)
    now.delete("train")
    return now


def succeeded(*chips: int) -> NodeLedger:
    """A node without a scheduler: a pod had these chips until now, another comes."""
    now = standalone_node(pod("train", chips))
    now.mounts_for("train", *chips)
    now.read_chips(busy=chip_sets.mask_of(chips))
    now.becomes("train", "Succeeded")
    return now


def comes(now: NodeLedger, count: int) -> None:
    """A pod comes that asks for so many chips, which no scheduler has chosen."""
    now.update(replace(pod("next", range(count)), annotations={}))


def asks(now: NodeLedger, *chips: int, last_call: bool = False) -> Effect:
    """What an Allocate with these chips' ids is answered first."""
    return now.apply(AllocateAsked(ids(*chips), last_call=last_call))[0]


def test_a_process_that_was_seen_before_its_pods_end_leaves_the_ids_as_they_were() -> (
    None
):
    now = ended()

    assert now.unhealthy_ids() == ()
    assert now.affinity.releasing == ()


def test_a_process_that_is_seen_after_its_pods_end_takes_exactly_its_ids() -> None:
    now = ended()

    now.read_chips(busy=0b1)

    assert now.unhealthy_ids() == ids(0)
    assert now.affinity.releasing == (0,)


def test_where_no_chip_can_be_read_no_look_is_awaited() -> None:
    now = ended()
    now.knows_not("train")
    now.passes(looks=False)
    before = now.affinity.held

    now.apply(ChipsUnreadable())
    now.passes(looks=False)

    assert before == (0,)
    assert now.affinity.held == now.affinity.releasing == ()
    assert now.unhealthy_ids() == ()


def test_of_a_pod_that_ends_where_no_chip_can_be_read_the_kernel_tells() -> None:
    now = confirmed()
    now.read_chips(busy=0b1)
    now.apply(ChipsUnreadable())
    now.delete("train")
    now.knows_not("train")
    now.apply(StrayProcessesRead(frozenset({"uid-train"}), {"uid-train": (42,)}))
    now.passes(looks=False)
    with_process = now.affinity.held

    now.apply(StrayProcessesRead(frozenset({"uid-train"}), {}))
    now.passes(looks=False)

    assert with_process == (0,)
    assert now.affinity.held == ()


def test_a_look_is_awaited_again_once_chips_can_be_read() -> None:
    now = confirmed()
    now.apply(ChipsUnreadable())
    now.read_chips(busy=0b1)

    now.delete("train")
    now.knows_not("train")
    now.passes(looks=False)

    assert now.affinity.held == (0,)


def test_no_process_before_its_end_does_not_free_the_chips_of_a_pod() -> None:
    now = confirmed()
    now.read_chips()
    now.delete("train")
    now.knows_not("train")

    now.passes(3, looks=False)
    before = now.affinity.held
    now.read_chips()
    now.passes()

    assert (before, now.affinity.held) == ((0,), ())


@pytest.mark.parametrize("busy", [0, 0b1])
def test_a_look_that_is_told_after_an_end_and_began_before_it_proves_nothing(
    busy: int,
) -> None:
    now = confirmed()
    began_s = now.now_s + 0.5
    now.delete("train")
    now.knows_not("train")

    now.read_chips(busy=busy, began_s=began_s)
    now.passes(3, looks=False)

    assert now.unhealthy_ids() == ()
    assert (now.affinity.held, now.affinity.releasing) == ((0,), ())


def test_a_chip_that_a_look_could_not_read_is_not_known_better_than_before() -> None:
    now = current(pod("train", [0, 1]))
    now.mounts_for("train", 0, 1)
    now.delete("train")
    now.knows_not("train")

    now.read_chips(busy=0b10, unread=0b10)
    now.passes(looks=False)

    assert (now.affinity.held, now.unhealthy_ids()) == ((1,), ())


def test_the_end_of_a_pod_is_its_first_and_not_that_of_its_object() -> None:
    now = confirmed()
    now.becomes("train", "Succeeded")
    now.read_chips(busy=0b1)

    now.delete("train")

    assert now.unhealthy_ids() == ids(0)


def test_of_pods_that_ended_while_no_agent_ran_a_look_of_its_start_proves_nothing() -> (
    None
):
    before = confirmed()

    now = restarted(before)
    now.knows_not("train")
    now.passes(3, looks=False)
    held = now.affinity.held
    now.passes()

    assert (held, now.affinity.held) == ((0,), ())


def test_what_a_pod_without_its_devices_may_use_is_given_to_nobody_unseen() -> None:
    now = current(pod("bare", [0], phase="Running"))
    now.shows("bare", main=())
    now.read_chips(busy=0b1)

    now.delete("bare")

    assert now.unhealthy_ids() == ()
    assert now.affinity.releasing == (0,)  # no scheduler chooses it
    assert not occupancy.unclaimed_chips(now.ledger) & 0b1


def test_an_allocate_that_only_a_look_can_serve_waits_for_it() -> None:
    now = succeeded(*range(8))
    comes(now, 8)

    before = asks(now, *range(8))
    now.read_chips()

    assert before == AwaitLook()
    assert isinstance(asks(now, *range(8)), Granted)


def test_a_preference_names_the_ids_for_which_a_look_is_missing() -> None:
    now = succeeded(*range(8))
    comes(now, 4)

    before = now.steers(EVERY_ID, 4)
    now.read_chips()

    assert before == Preferred(ids(0, 1, 2, 3), claim_missing=False, look_missing=True)
    assert now.steers(EVERY_ID, 4) == Preferred(ids(0, 1, 2, 3), claim_missing=False)


def test_a_look_that_does_not_come_in_time_is_named_in_the_refusal() -> None:
    now = succeeded(0, 1, 2, 3, 4, 5, 6, 7)
    comes(now, 8)

    assert now.refusal(*range(8)) == (
        "the driver has not shown in time whether processes are left on Ascend910-0,"
        "Ascend910-1,Ascend910-2,Ascend910-3,Ascend910-4,Ascend910-5,Ascend910-6,"
        "Ascend910-7, whose pods have just ended. A new pod in its place will be tried "
        "again"
    )


def test_a_process_that_is_left_refuses_at_once() -> None:
    now = succeeded(*range(8))
    comes(now, 8)
    now.read_chips(busy=0b1)

    refused = asks(now, *range(8))

    assert isinstance(refused, Refused)
    assert refused.text.startswith("too few chips are free: ")


def test_a_pod_that_others_serve_as_well_waits_for_no_look() -> None:
    now = succeeded(0, 1)
    comes(now, 2)

    assert now.steers(EVERY_ID, 2) == Preferred(ids(2, 3), claim_missing=False)
    assert isinstance(asks(now, 2, 3), Granted)


def test_chips_that_belong_together_are_waited_for() -> None:
    now = succeeded(0, 1)  # without them no ring has four chips that are free
    now.read_chips(unhealthy=0b0011_0000, began_s=0.0)
    comes(now, 4)

    assert now.steers(EVERY_ID, 4) == Preferred(
        ids(0, 1, 2, 3), claim_missing=False, look_missing=True
    )


def test_a_claim_is_not_replaced_before_a_look_has_shown_that_it_must_be() -> None:
    now = ended()
    now.update(pod("next", [0], 2))

    first = asks(now, 0)
    now.read_chips()
    granted = asks(now, 0)

    assert first == AwaitLook()
    assert isinstance(granted, Granted)
    assert granted.hold.chips == (0,)


EVENTS = ("look begins", "look is told", "pod ends", "successor asks")
ORDERS = [
    order
    for order in permutations(EVENTS)
    if order.index("look begins") < order.index("look is told")
    and order.index("pod ends") < order.index("successor asks")
]


@pytest.mark.parametrize("outlives", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_in_every_order_of_look_and_end_a_successor_meets_what_is_left_alone(
    order: tuple[str, ...], *, outlives: bool
) -> None:
    """The processes end with the pod, or one on chip 3 does not."""
    now = standalone_node(pod("train", range(8)))
    now.mounts_for("train", *range(8))
    left = 0b1000 if outlives else 0
    seen: dict[str, ChipsRead] = {}
    has_ended = False
    answer: Effect | None = None
    for event in order:
        if event == "look begins":
            busy = left if has_ended else ALL
            seen["look"] = ChipsRead(0, busy, began_s=now.now_s + 0.5)
        elif event == "look is told":
            now.apply(seen["look"])
        elif event == "pod ends":
            now.apply(PodDeleted("uid-train"))
            has_ended = True
        else:
            comes(now, 8)
            answer = asks(now, *range(8))
        unhealthy = now.unhealthy_ids()
        is_known = has_ended and now.ledger.ended_s == {}
        assert unhealthy == (ids(3) if is_known and outlives else ())
    if answer == AwaitLook():
        now.read_chips(busy=left)
        answer = asks(now, *range(8))

    assert isinstance(answer, Refused if outlives else Granted)
    assert now.unhealthy_ids() == (ids(3) if outlives else ())
