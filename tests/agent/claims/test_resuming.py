"""What the next agent makes of exchanges and choices that were not written yet."""

from agent.claims import ledger as ledgers
from tests.agent.node import app, current, pair, pod, restarted, staged


def test_what_init_containers_had_before_is_no_part_of_a_slot_that_is_too_small() -> (
    None
):
    train = pod("train", [0], 1, phase="Running", containers=staged(1, 1))
    before = current(train)
    before.mounts_singly(5, 5)
    before.shows("train", main=(5,))
    before.shows("train", main=())
    before.read_chips(busy=0b1)
    assert before.mounts(6) == (1,)
    before.shows("train", main=(6,))

    now = restarted(before, train)

    assert now.slots()["train"] == (1,)


def test_a_choice_that_was_not_written_is_taken_up_after_a_restart() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.read_chips(unhealthy=0b11)
    got = before.mounts(0)

    now = restarted(before, train)

    assert got == (2,)
    assert now.slots() == {"train": (2, 3)}  # what fits to it


def test_its_own_chips_are_for_it_if_they_are_well_again() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.read_chips(unhealthy=0b11)
    before.mounts(0)
    before.read_chips()

    assert restarted(before, train).slots() == {"train": (0, 2)}


def test_where_nothing_fits_to_it_the_rest_of_the_claim_stays() -> None:
    train = pair("train", [0, 1], 1)
    before = current(train)
    before.read_chips(unhealthy=0b11)
    before.mounts(0)
    others = [
        pod("a", [3], 2),
        pod("b", [4, 5, 6, 7], 3),
    ]

    now = restarted(before, train, *others)

    assert now.slots() == {"train": (0, 2), "a": (3,), "b": (4, 5, 6, 7)}


def test_claims_from_which_only_their_own_was_given_are_left_alone() -> None:
    pods = [pair(f"p{n}", [n, n + 1], n + 1) for n in (0, 2, 4)]
    before = current(*pods)
    before.mounts(0)

    now = restarted(before, *pods)

    assert now.slots() == {"p0": (0, 1), "p2": (2, 3), "p4": (4, 5)}


def test_half_of_an_exchange_that_was_begun_is_finished_with_the_whole_slot() -> None:
    first, second = pair("first", [0, 1], 1), pair("second", [2, 3], 2)
    before = current(first, second)
    before.mounts(4)
    before.shows("second", one=(4,))

    now = restarted(before, first, second)

    assert now.slots() == {"first": (2, 3), "second": (0, 1)}


def test_a_choice_that_was_not_written_takes_no_equals_chips() -> None:
    served, again = pod("served", [0, 1], 1), pod("again", [2, 3], 2)
    waits = pod("waits", [6, 7], 3)
    before = current(served, again, waits)
    before.mounts(0, 1)
    before.read_chips(unhealthy=0b1100)
    assert before.mounts(2, 3) == (4, 5)

    now = restarted(before, served, again, waits)

    assert now.slots() == {"served": (0, 1), "again": (4, 5), "waits": (6, 7)}


def test_without_a_journal_nothing_is_taken_over() -> None:
    now = current()

    assert ledgers.restore(now.ledger, []) == now.ledger


def test_an_unlike_claim_is_no_part_of_an_exchange_that_was_begun() -> None:
    first = pair("first", [0, 1], 1)
    before = current(pair("second", [2, 3], 2), first)
    before.mounts_singly(0, 1)
    before.shows("second", one=(0,), two=(1,))
    unlike = pod("first", [0, 1], 1, containers=[app("one", 2)])

    now = restarted(before, pair("second", [2, 3], 2), unlike)

    assert now.slots() == {"second": (0, 1), "first": (0, 1)}


def test_of_ids_given_again_before_the_restart_the_newest_counts() -> None:
    train = pod("train", [0], 1)
    before = current(train)
    before.mounts(5)
    before.prefers(("Ascend910-5",), 1)  # it was rejected, and is tried again
    assert before.mounts(5) == (1,)

    now = restarted(before, train)

    assert now.slots() == {"train": (1,)}
