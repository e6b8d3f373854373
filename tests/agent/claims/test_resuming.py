"""What the next agent makes of exchanges and choices that were not written yet."""

from agent.claims import ledger as ledgers
from agent.claims.events import ChipsRead
from scheduler_core.wire.pods import NpuPod
from tests.agent.node import current, pod, restarted, slots
from tests.agent.rules.kubelet import app, init, mounts, prefers, shows

BOTH = [app("one", 1), app("two", 1)]


def pair(name: str, chips: list[int], time: int, phase: str = "Pending") -> NpuPod:
    """A pod of two containers with a chip each."""
    return pod(name, chips, time, containers=BOTH, phase=phase)


def test_what_init_containers_had_before_is_no_part_of_a_slot_that_is_too_small() -> (
    None
):
    needs = [init("prepare", 1), app("main", 1)]
    train = pod("train", [0], 1, phase="Running", containers=needs)
    before = current(train)
    mounts(before, 5)
    mounts(before, 5)
    shows(before, "train", main=(5,))
    shows(before, "train", main=())
    before.apply(ChipsRead(unhealthy=0, busy=0b1))
    assert mounts(before, 6) == (1,)
    shows(before, "train", main=(6,))

    now = restarted(before, train)

    assert slots(now)["train"] == (1,)


def test_a_choice_that_was_not_written_is_taken_up_after_a_restart() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.apply(ChipsRead(unhealthy=0b11, busy=0))
    got = mounts(before, 0)

    now = restarted(before, train)

    assert got == (2,)
    assert slots(now) == {"train": (2, 3)}  # what fits to it


def test_its_own_chips_are_for_it_if_they_are_well_again() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.apply(ChipsRead(unhealthy=0b11, busy=0))
    mounts(before, 0)
    before.apply(ChipsRead(unhealthy=0, busy=0))

    assert slots(restarted(before, train)) == {"train": (0, 2)}


def test_where_nothing_fits_to_it_the_rest_of_the_claim_stays() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.apply(ChipsRead(unhealthy=0b11, busy=0))
    mounts(before, 0)
    others = [
        pod("a", [3], 2),
        pod("b", [4, 5, 6, 7], 3),
    ]

    now = restarted(before, train, *others)

    assert slots(now) == {"train": (0, 2), "a": (3,), "b": (4, 5, 6, 7)}


def test_claims_from_which_only_their_own_was_given_are_left_alone() -> None:
    pods = [pair(f"p{n}", [n, n + 1], n + 1) for n in (0, 2, 4)]
    before = current(*pods)
    mounts(before, 0)

    now = restarted(before, *pods)

    assert slots(now) == {"p0": (0, 1), "p2": (2, 3), "p4": (4, 5)}


def test_half_of_an_exchange_that_was_begun_is_finished_with_the_whole_slot() -> None:
    first, second = pair("first", [0, 1], 1), pair("second", [2, 3], 2)
    before = current(first, second)
    mounts(before, 4)
    shows(before, "second", one=(4,))

    now = restarted(before, first, second)

    assert slots(now) == {"first": (2, 3), "second": (0, 1)}


def test_a_choice_that_was_not_written_takes_no_equals_chips() -> None:
    served, again = pod("served", [0, 1], 1), pod("again", [2, 3], 2)
    waits = pod("waits", [6, 7], 3)
    before = current(served, again, waits)
    mounts(before, 0, 1)
    before.apply(ChipsRead(unhealthy=0b1100, busy=0))
    assert mounts(before, 2, 3) == (4, 5)

    now = restarted(before, served, again, waits)

    assert slots(now) == {"served": (0, 1), "again": (4, 5), "waits": (6, 7)}


def test_without_a_journal_nothing_is_taken_over() -> None:
    now = current()

    assert ledgers.restore(now.ledger, []) == now.ledger


def test_an_unlike_claim_is_no_part_of_an_exchange_that_was_begun() -> None:
    first = pair("first", [0, 1], 1)
    before = current(pair("second", [2, 3], 2), first)
    mounts(before, 0)
    mounts(before, 1)
    shows(before, "second", one=(0,), two=(1,))
    unlike = pod("first", [0, 1], 1, containers=[app("one", 2)])

    now = restarted(before, pair("second", [2, 3], 2), unlike)

    assert slots(now) == {"second": (0, 1), "first": (0, 1)}


def test_of_ids_given_again_before_the_restart_the_newest_counts() -> None:
    train = pod("train", [0], 1)
    before = current(train)
    mounts(before, 5)
    prefers(before, ("Ascend910-5",), 1)  # it was rejected, and is tried again
    assert mounts(before, 5) == (1,)

    now = restarted(before, train)

    assert slots(now) == {"train": (1,)}
