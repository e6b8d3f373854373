"""The rules of pairing one by one, on the pure ledger; and unreadable claims."""

from dataclasses import replace
from itertools import permutations

import pytest

from agent.claims import ledger as ledgers
from agent.claims import occupancy, values
from agent.claims.annotations import make_affinity, plan_patches
from agent.claims.events import (
    AllocateAsked,
    AwaitClaim,
    ChipsRead,
    Counted,
    Effect,
    Granted,
    Identity,
    Noted,
    PassEnded,
    PodDeleted,
    PodUpdated,
    PreferenceAsked,
    Preferred,
    Refused,
)
from agent.claims.store import LedgerStore
from tests.agent.node import RESOURCE, Effects, current, ids, pod
from tests.agent.rules.kubelet import shows

EVERY_ID = ids(*range(8))


def granted(effects: tuple[Effect, ...]) -> tuple[int, ...]:
    """The chips that an Allocate was answered with."""
    (chips,) = [e.hold.chips for e in effects if isinstance(e, Granted)]
    return chips


def asks(now: LedgerStore, *chips: int) -> tuple[int, ...]:
    return granted(now.apply(AllocateAsked(ids(*chips), last_call=True)))


@pytest.mark.seed("000-05")
@pytest.mark.seed("000-11")
def test_the_oldest_claim_of_the_count_is_served_and_none_is_served_twice() -> None:
    now = current(pod("new", [0, 1], 30), pod("old", [2, 3], 20), pod("one", [4], 10))

    assert [asks(now, 0, 1), asks(now, 4, 5)] == [(2, 3), (0, 1)]
    (effect,) = now.apply(AllocateAsked(ids(6, 7), last_call=True))
    assert isinstance(effect, Refused)


@pytest.mark.seed("000-10")
def test_the_worked_example_of_the_seed() -> None:
    now = current(pod("train", [0, 1]))

    asks(now, 7, 0)
    shows(now, "train", main=(7, 0))

    (patch,) = plan_patches(now.ledger, host_ip="10.0.0.1")
    assert patch.annotations["huawei.com/kltDev"] == "Ascend910-0,Ascend910-7"
    assert patch.annotations["huawei.com/AscendReal"] == "Ascend910-0,Ascend910-1"


@pytest.mark.seed("000-09")
def test_times_are_compared_as_numbers() -> None:
    now = current(pod("ten", [0], 10), pod("nine", [1], 9))

    assert asks(now, 5) == (1,)


@pytest.mark.parametrize("order", list(permutations(("a", "b", "c"))))
@pytest.mark.parametrize("obeys", [True, False])
def test_in_any_order_of_admission_each_pod_ends_with_what_it_mounted(
    order: tuple[str, ...],
    obeys: bool,
) -> None:
    now = current(pod("a", [0], 1), pod("b", [1], 2), pod("c", [2], 3))
    mounted: dict[str, int] = {}
    given: set[str] = set()
    for position, name in enumerate(order):
        free = tuple(each for each in EVERY_ID if each not in given)
        (preferred,) = now.apply(PreferenceAsked(free, (), 1))
        assert isinstance(preferred, Preferred)
        chip = int(preferred.kubelet_ids[0][-1]) if obeys else 7 - position
        given.update(ids(chip))
        (got,) = asks(now, chip)
        shows(now, name, main=(chip,))
        mounted[name] = got

    assert sorted(mounted.values()) == [0, 1, 2]
    assert {
        hold.owner.pod: hold.chips[0]
        for hold in now.ledger.holds.values()
        if hold.owner
    } == mounted
    assert {slot.uid: slot.chips for slot in now.ledger.slots.values()} == {
        f"uid-{name}": 1 << chip for name, chip in mounted.items()
    }


def test_a_broken_claim_is_chosen_again_among_chips_that_nobody_claims() -> None:
    effects = Effects()
    now = current(pod("train", [0, 1]), pod("rest", [2, 3], 2), effects=effects)
    now.apply(ChipsRead(unhealthy=0b1, busy=0))

    assert asks(now, 0, 1) == (4, 5)
    assert Counted(Identity.RECHOSEN) in effects


def test_if_none_is_free_an_equal_claim_is_served_and_else_the_refusal_says_why() -> (
    None
):
    now = current(pod("first", [0, 1, 2, 3], 1), pod("second", [4, 5, 6, 7], 2))
    now.apply(ChipsRead(unhealthy=0b1, busy=0))

    assert asks(now, 0, 1, 2, 3) == (4, 5, 6, 7)
    (effect,) = now.apply(AllocateAsked(ids(4, 5, 6, 7), last_call=True))
    assert isinstance(effect, Refused)
    assert "Ascend910-0 unhealthy" in effect.text


def test_without_a_claim_it_waits_first_and_then_refuses() -> None:
    now = current()

    assert now.apply(AllocateAsked(ids(0), last_call=False)) == (AwaitClaim(1),)
    (effect,) = now.apply(AllocateAsked(ids(0), last_call=True))
    assert isinstance(effect, Refused)


def test_a_mis_steered_pod_costs_a_full_node_no_place() -> None:
    now = current(*(pod(f"p{chip}", [chip], chip + 1) for chip in range(8)))

    got = [asks(now, 7)]
    taken = {"Ascend910-7"}
    for _ in range(7):
        free = tuple(
            name
            for name, healthy in occupancy.list_devices(now.ledger)
            if healthy and name not in taken
        )
        taken.add(free[0])
        got.append(granted(now.apply(AllocateAsked((free[0],), last_call=True))))

    assert sorted(got) == [(chip,) for chip in range(8)]


def test_an_id_is_as_healthy_as_the_chip_behind_it() -> None:
    now = current(pod("train", [0]))
    asks(now, 7)

    now.apply(ChipsRead(unhealthy=0b1, busy=0))

    unhealthy = [n for n, healthy in occupancy.list_devices(now.ledger) if not healthy]
    assert unhealthy == ["Ascend910-7"]
    assert [name for name, _ in occupancy.list_devices(now.ledger)] == list(EVERY_ID)


def test_a_hold_ends_only_when_api_server_kubelet_and_processes_agree() -> None:
    now = current(pod("train", [0]))
    asks(now, 0)
    shows(now, "train", main=(0,))
    stages: list[int] = []

    now.apply(PassEnded(quiet=True))  # the pod lives
    stages.append(values.held_chips(now.ledger))
    now.apply(PodDeleted("uid-train"))
    now.apply(PassEnded(quiet=True))  # the kubelet still shows it
    stages.append(values.held_chips(now.ledger))
    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    shows(now, "train", main=())
    now.apply(PassEnded(quiet=True))  # a process is on the chip
    blocked = make_affinity(now.ledger).held + make_affinity(now.ledger).releasing
    now.apply(ChipsRead(unhealthy=0, busy=0))
    now.apply(PassEnded(quiet=True))
    stages.append(values.held_chips(now.ledger))

    assert stages == [1, 1, 0]
    assert 0 in blocked


def test_without_a_journal_both_the_ids_and_the_claims_chips_stay_reserved() -> None:
    now = current(pod("train", [0, 1], phase="Running"))

    shows(now, "train", main=(6, 7))

    assert set(make_affinity(now.ledger).held) == {0, 1, 6, 7}


def test_a_swap_that_was_half_written_is_finished_by_the_next_agent() -> None:
    first, second = pod("first", [0, 1], 1), pod("second", [2, 3], 2)
    before = current(first, second)
    asks(before, 0, 1)
    shows(before, "second", main=(0, 1))

    after = current()
    after.replace(ledgers.restore(after.ledger, before.ledger.holds.values()))
    for each in (first, second):
        after.apply(PodUpdated(each))
    after.replace(ledgers.resume(after.ledger))

    assert asks(after, 2, 3) == (2, 3)


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({RESOURCE: "Ascend910-0, Ascend910-1"}, "' Ascend910-1'"),
        ({RESOURCE: "Ascend910-0,Ascend910-1,"}, "''"),
        ({RESOURCE: "Ascend910-0,Ascend910-0"}, "Ascend910-0"),
        ({RESOURCE: "Ascend910-0,Ascend910-8"}, "Ascend910-8"),
        ({RESOURCE: "Ascend310-0,Ascend910-1"}, "Ascend310-0"),
        ({RESOURCE: "Ascend910-0"}, "expected 2 chips"),
        ({"predicate-time": ""}, "predicate-time"),
        ({"predicate-time": "-1"}, "-1"),
        ({"predicate-time": "now"}, "now"),
        ({"predicate-time": str(2**64)}, str(2**64)),
    ],
)
def test_a_claim_that_cannot_be_read_is_no_candidate_and_is_named_once(
    annotations: dict[str, str], says: str
) -> None:
    effects = Effects()
    spoilt = pod("train", [0, 1], annotations=annotations)

    now = current(spoilt, spoilt, effects=effects)

    (note,) = [effect for effect in effects if isinstance(effect, Noted)]
    assert (note.uid, note.reason) == ("uid-train", "NpuClaimUnreadable")
    assert says in note.text
    (refused,) = now.apply(AllocateAsked(ids(0, 1), last_call=True))
    assert isinstance(refused, Refused)
    assert "default/train" in refused.text


def test_a_claim_without_a_time_is_no_candidate() -> None:
    untimed = pod("train", [0])
    untimed = replace(untimed, annotations={RESOURCE: "Ascend910-0"})
    effects = Effects()

    now = current(untimed, effects=effects)

    assert any(isinstance(effect, Noted) for effect in effects)
    (refused,) = now.apply(AllocateAsked(ids(0), last_call=True))
    assert isinstance(refused, Refused)
