"""Chips are released when all sources agree, and not before: rule 7."""

from dataclasses import replace

import pytest

from agent.claims import occupancy, values
from agent.claims.events import Event, PassEnded, PodDeleted, PodUpdated, Registering
from tests.agent.node import TRAIN, NodeLedger, confirmed, current, ids, pod, rejected

ENDS = [PodDeleted("uid-train"), PodUpdated(replace(TRAIN, phase="Succeeded"))]


def served() -> NodeLedger:
    """A node whose kubelet has not yet shown whose chip 0 is."""
    now = current(TRAIN)
    now.mounts(0)
    return now


@pytest.mark.parametrize("end", ENDS)
def test_the_chips_of_a_pod_that_ended_everywhere_are_free(end: Event) -> None:
    now = confirmed()

    now.apply(end)
    now.knows_not("train")
    now.passes()

    assert now.affinity.held == ()


@pytest.mark.parametrize("end", ENDS)
def test_ids_of_an_ended_pod_that_the_kubelet_gives_again_bring_their_chips(
    end: Event,
) -> None:
    # The scheduler never saw the hold of so short a pod, and chose its chip again.
    now = confirmed()
    now.apply(end)
    now.looks_again()
    now.update(pod("next", [0], 2))

    assert now.prefers(ids(0, 1), 1) == ids(0)
    assert now.mounts(0) == (0,)


@pytest.mark.parametrize("end", ENDS)
def test_ids_of_a_pod_that_ended_before_it_was_confirmed_bring_their_chips(
    end: Event,
) -> None:
    now = served()
    now.apply(end)
    now.looks_again()
    now.update(pod("next", [0], 2))

    assert now.prefers(ids(0), 1) == ids(0)
    assert now.mounts(0) == (0,)


def test_ids_that_the_kubelet_may_have_forgotten_bring_no_chips() -> None:
    now = served()
    now.apply(Registering("second"))
    now.delete("train")
    now.looks_again()
    now.update(pod("next", [0], 2))

    assert now.mounts(0) == (1,)


def test_a_process_on_the_chip_of_an_unconfirmed_pod_that_ended_keeps_it() -> None:
    now = served()
    now.delete("train")
    now.read_chips(busy=0b1)
    now.update(pod("next", [0], 2))

    assert now.mounts(0) == (1,)


def test_a_process_keeps_the_chip_of_ids_that_the_kubelet_gives_again() -> None:
    now = confirmed()
    now.delete("train")
    now.read_chips(busy=0b1)
    now.update(pod("next", [0], 2))

    assert now.mounts(0) == (1,)


def test_a_living_pod_that_pod_resources_does_not_show_keeps_its_chips() -> None:
    now = confirmed()

    now.knows_not("train")
    now.passes(3)

    assert now.affinity.held == (0,)


@pytest.mark.parametrize("end", ENDS)
def test_a_pod_that_pod_resources_still_shows_keeps_its_chips(end: Event) -> None:
    now = confirmed()

    now.apply(end)
    now.shows("train", main=(0,))
    now.passes(3)

    assert now.affinity.held == (0,)


@pytest.mark.seed("004-13")
@pytest.mark.parametrize("end", ENDS)
def test_a_process_on_a_chip_keeps_it(end: Event) -> None:
    now = confirmed()

    now.read_chips(busy=0b1)
    now.apply(end)
    now.knows_not("train")
    now.passes(3)

    assert now.affinity.held == (0,)
    assert now.affinity.releasing == (0,)


def test_nothing_that_was_not_read_since_proves_an_end() -> None:
    now = current(TRAIN)
    now.mounts_for("train", 0)
    now.replace(replace(now.ledger, evidence={}))  # as after a restart

    now.delete("train")
    now.passes(3)

    assert now.affinity.held == (0,)


def test_a_reading_of_before_the_hold_proves_nothing_of_it() -> None:
    other = pod("other", [1], 2)
    now = current(TRAIN, other)
    now.knows_not("train")
    old = now.ledger.evidence["uid-train"]
    now.mounts_for("train", 0)

    now.delete("train")
    now.replace(replace(now.ledger, evidence={"uid-train": old}))
    now.passes(3)

    assert now.affinity.held == (0,)


def test_a_reading_during_an_allocate_proves_no_absence() -> None:
    now = confirmed()

    now.delete("train")
    now.knows_not("train", quiet=False)
    now.passes(3)
    during = values.held_chips(now.ledger)
    now.knows_not("train")
    now.passes()

    assert (during, values.held_chips(now.ledger)) == (0b1, 0)


def test_a_pass_during_an_allocate_releases_nothing() -> None:
    now = confirmed()
    now.delete("train")
    now.knows_not("train")

    now.apply(PassEnded(quiet=False, in_use={}))

    assert now.affinity.held == (0,)


def test_what_a_rejected_pod_was_given_is_free_after_two_passes() -> None:
    now = rejected()
    held = []
    for _ in range(2):
        now.passes()
        held.append(now.affinity.held)

    assert held == [(0,), ()]


def test_ids_that_pod_resources_lists_for_anybody_are_still_held() -> None:
    now = rejected()

    now.passes(3, in_use=(0,))
    during = now.affinity.held
    now.passes()

    assert (during, now.affinity.held) == ((0,), ())


def test_while_it_may_belong_to_a_living_pod_it_is_held() -> None:
    now = rejected()
    now.update(pod("late", [1], 2, phase="Running"))

    now.passes(3)

    assert now.affinity.held == (0,)


@pytest.mark.seed("004-13")
def test_a_process_that_no_living_pod_explains_keeps_its_chip_from_all() -> None:
    now = current(pod("train", [1]))

    now.read_chips(busy=0b1)

    assert now.affinity.releasing == (0,)
    assert ("Ascend910-0", False) in occupancy.list_devices(now.ledger)
    assert not occupancy.unclaimed_chips(now.ledger) & 0b1


def test_a_process_of_a_living_pod_is_nothing_to_wait_for() -> None:
    now = confirmed()

    now.read_chips(busy=0b1)

    assert now.affinity.releasing == ()
    assert ("Ascend910-0", True) in occupancy.list_devices(now.ledger)


def test_of_several_chips_those_are_free_that_no_process_uses() -> None:
    now = current(pod("wide", [0, 1, 2, 3]))
    now.mounts_for("wide", 0, 1, 2, 3)
    now.delete("wide")
    now.knows_not("wide")

    now.read_chips(busy=0b100)
    now.passes()
    during = now.affinity
    offered = occupancy.unclaimed_chips(now.ledger)
    now.read_chips()
    now.passes()

    assert (during.held, during.releasing) == ((2,), (2,))
    assert offered == 0b11111011
    assert now.affinity.held == ()
    assert not now.ledger.slots
