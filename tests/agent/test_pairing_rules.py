"""The rules of pairing one by one, on the pure ledger; and unreadable claims."""

from dataclasses import replace
from itertools import permutations

import pytest

from agent.claims import values
from agent.claims.events import AllocateAsked, AwaitClaim, Counted, Identity, PassEnded
from tests.agent.node import EVERY_ID, RESOURCE, current, ids, pod


@pytest.mark.seed("000-05")
@pytest.mark.seed("000-11")
def test_the_oldest_claim_of_the_count_is_served_and_none_is_served_twice() -> None:
    now = current(pod("new", [0, 1], 30), pod("old", [2, 3], 20), pod("one", [4], 10))

    assert [now.mounts(0, 1), now.mounts(4, 5)] == [(2, 3), (0, 1)]
    assert now.refusal(6, 7)


@pytest.mark.seed("000-10")
def test_the_worked_example_of_the_seed() -> None:
    now = current(pod("train", [0, 1]))

    now.mounts_for("train", 7, 0)

    written = now.written()["train"]
    assert written["huawei.com/kltDev"] == "Ascend910-0,Ascend910-7"
    assert written["huawei.com/AscendReal"] == "Ascend910-0,Ascend910-1"


@pytest.mark.seed("000-09")
def test_times_are_compared_as_numbers() -> None:
    now = current(pod("ten", [0], 10), pod("nine", [1], 9))

    assert now.mounts(5) == (1,)


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
        chip = int(now.prefers(free, 1)[0][-1]) if obeys else 7 - position
        given.update(ids(chip))
        (mounted[name],) = now.mounts_for(name, chip)

    assert sorted(mounted.values()) == [0, 1, 2]
    assert {
        hold.owner.pod: hold.chips[0]
        for hold in now.ledger.holds.values()
        if hold.owner
    } == mounted
    assert now.slots() == {name: (chip,) for name, chip in mounted.items()}


def test_a_broken_claim_is_chosen_again_among_chips_that_nobody_claims() -> None:
    now = current(pod("train", [0, 1]), pod("rest", [2, 3], 2))
    now.read_chips(unhealthy=0b1)

    assert now.mounts(0, 1) == (4, 5)
    assert Counted(Identity.RECHOSEN) in now.effects


def test_if_none_is_free_an_equal_claim_is_served_and_else_the_refusal_says_why() -> (
    None
):
    now = current(pod("first", [0, 1, 2, 3], 1), pod("second", [4, 5, 6, 7], 2))
    now.read_chips(unhealthy=0b1)

    assert now.mounts(0, 1, 2, 3) == (4, 5, 6, 7)
    assert "Ascend910-0 unhealthy" in now.refusal(4, 5, 6, 7)


def test_without_a_claim_it_waits_first_and_then_refuses() -> None:
    now = current()

    assert now.apply(AllocateAsked(ids(0), last_call=False)) == (AwaitClaim(),)
    assert now.refusal(0)


def test_a_mis_steered_pod_costs_a_full_node_no_place() -> None:
    now = current(*(pod(f"p{chip}", [chip], chip + 1) for chip in range(8)))

    got = [now.mounts(7)]
    taken = {"Ascend910-7"}
    for _ in range(7):
        out = taken.union(now.unhealthy_ids())
        free = next(name for name in EVERY_ID if name not in out)
        taken.add(free)
        got.append(now.mounts(int(free[-1])))

    assert sorted(got) == [(chip,) for chip in range(8)]


def test_a_hold_ends_only_when_api_server_kubelet_and_processes_agree() -> None:
    now = current(pod("train", [0]))
    now.mounts_for("train", 0)
    stages: list[int] = []

    now.apply(PassEnded(quiet=True))  # the pod lives
    stages.append(values.held_chips(now.ledger))
    now.delete("train")
    now.apply(PassEnded(quiet=True))  # the kubelet still shows it
    stages.append(values.held_chips(now.ledger))
    now.read_chips(busy=0b1)
    now.shows("train", main=())
    now.apply(PassEnded(quiet=True))  # a process is on the chip
    blocked = now.affinity.held + now.affinity.releasing
    now.read_chips()
    now.apply(PassEnded(quiet=True))
    stages.append(values.held_chips(now.ledger))

    assert stages == [1, 1, 0]
    assert 0 in blocked


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
    spoilt = pod("train", [0, 1], annotations=annotations)

    now = current(spoilt, spoilt)

    (note,) = now.notes()
    assert (note.uid, note.reason) == ("uid-train", "NpuClaimUnreadable")
    assert says in note.text
    assert "default/train" in now.refusal(0, 1)


def test_a_claim_without_a_time_is_no_candidate() -> None:
    untimed = pod("train", [0])
    untimed = replace(untimed, annotations={RESOURCE: "Ascend910-0"})

    now = current(untimed)

    assert now.notes()
    assert now.refusal(0)
