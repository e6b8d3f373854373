"""Chips are released when all sources agree, and not before: rule 7."""

from dataclasses import replace

import pytest

from agent.claims import occupancy, values
from agent.claims.annotations import make_affinity
from agent.claims.events import ChipsRead, Event, PassEnded, PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from tests.agent.node import current, ids, pod
from tests.agent.rules.kubelet import knows_not, mounts, passes, prefers, shows

TRAIN = pod("train", [0])
ENDS = [PodDeleted("uid-train"), PodUpdated(replace(TRAIN, phase="Succeeded"))]


def confirmed() -> LedgerStore:
    """A node where a pod is known to hold chip 0."""
    now = current(TRAIN)
    mounts(now, 0)
    shows(now, "train", main=(0,))
    return now


@pytest.mark.parametrize("end", ENDS)
def test_the_chips_of_a_pod_that_ended_everywhere_are_free(end: Event) -> None:
    now = confirmed()

    now.apply(end)
    knows_not(now, "train")
    passes(now)

    assert make_affinity(now.ledger).held == ()


@pytest.mark.parametrize("end", ENDS)
def test_ids_of_an_ended_pod_that_the_kubelet_gives_again_bring_their_chips(
    end: Event,
) -> None:
    # The scheduler never saw the hold of so short a pod, and chose its chip again.
    now = confirmed()
    now.apply(end)
    now.apply(PodUpdated(pod("next", [0], 2)))

    assert prefers(now, ids(0, 1), 1) == ids(0)
    assert mounts(now, 0) == (0,)


def test_a_process_keeps_the_chip_of_ids_that_the_kubelet_gives_again() -> None:
    now = confirmed()
    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    now.apply(PodDeleted("uid-train"))
    now.apply(PodUpdated(pod("next", [0], 2)))

    assert mounts(now, 0) == (1,)


def test_a_living_pod_that_pod_resources_does_not_show_keeps_its_chips() -> None:
    now = confirmed()

    knows_not(now, "train")
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)


@pytest.mark.parametrize("end", ENDS)
def test_a_pod_that_pod_resources_still_shows_keeps_its_chips(end: Event) -> None:
    now = confirmed()

    now.apply(end)
    shows(now, "train", main=(0,))
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)


@pytest.mark.seed("004-13")
@pytest.mark.parametrize("end", ENDS)
def test_a_process_on_a_chip_keeps_it(end: Event) -> None:
    now = confirmed()

    now.apply(ChipsRead(unhealthy=0, busy=0b1))
    now.apply(end)
    knows_not(now, "train")
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)
    assert make_affinity(now.ledger).releasing == (0,)


def test_nothing_that_was_not_read_since_proves_an_end() -> None:
    now = current(TRAIN)
    mounts(now, 0)
    shows(now, "train", main=(0,))
    now.replace(replace(now.ledger, evidence={}))  # as after a restart

    now.apply(PodDeleted("uid-train"))
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)


def test_a_reading_of_before_the_hold_proves_nothing_of_it() -> None:
    other = pod("other", [1], 2)
    now = current(TRAIN, other)
    knows_not(now, "train")
    old = now.ledger.evidence["uid-train"]
    mounts(now, 0)
    shows(now, "train", main=(0,))

    now.apply(PodDeleted("uid-train"))
    now.replace(replace(now.ledger, evidence={"uid-train": old}))
    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)


def test_a_reading_during_an_allocate_proves_no_absence() -> None:
    now = confirmed()

    now.apply(PodDeleted("uid-train"))
    knows_not(now, "train", quiet=False)
    passes(now, 3)
    during = values.held_chips(now.ledger)
    knows_not(now, "train")
    passes(now)

    assert (during, values.held_chips(now.ledger)) == (0b1, 0)


def test_a_pass_during_an_allocate_releases_nothing() -> None:
    now = confirmed()
    now.apply(PodDeleted("uid-train"))
    knows_not(now, "train")

    now.apply(PassEnded(quiet=False, in_use={}))

    assert make_affinity(now.ledger).held == (0,)


def rejected() -> LedgerStore:
    """A node where the pod of an Allocate was rejected after it."""
    now = current(TRAIN)
    mounts(now, 0)
    now.apply(PodUpdated(replace(TRAIN, phase="Failed")))
    return now


def test_what_a_rejected_pod_was_given_is_free_after_two_passes() -> None:
    now = rejected()
    held = []
    for _ in range(2):
        passes(now)
        held.append(make_affinity(now.ledger).held)

    assert held == [(0,), ()]


def test_ids_that_pod_resources_lists_for_anybody_are_still_held() -> None:
    now = rejected()

    passes(now, 3, in_use=(0,))
    during = make_affinity(now.ledger).held
    passes(now)

    assert (during, make_affinity(now.ledger).held) == ((0,), ())


def test_while_it_may_belong_to_a_living_pod_it_is_held() -> None:
    now = rejected()
    now.apply(PodUpdated(pod("late", [1], 2, phase="Running")))

    passes(now, 3)

    assert make_affinity(now.ledger).held == (0,)


@pytest.mark.seed("004-13")
def test_a_process_that_no_living_pod_explains_keeps_its_chip_from_all() -> None:
    now = current(pod("train", [1]))

    now.apply(ChipsRead(unhealthy=0, busy=0b1))

    assert make_affinity(now.ledger).releasing == (0,)
    assert ("Ascend910-0", False) in occupancy.list_devices(now.ledger)
    assert not occupancy.unclaimed_chips(now.ledger) & 0b1


def test_a_process_of_a_living_pod_is_nothing_to_wait_for() -> None:
    now = confirmed()

    now.apply(ChipsRead(unhealthy=0, busy=0b1))

    assert make_affinity(now.ledger).releasing == ()
    assert ("Ascend910-0", True) in occupancy.list_devices(now.ledger)


def test_of_several_chips_those_are_free_that_no_process_uses() -> None:
    now = current(pod("wide", [0, 1, 2, 3]))
    mounts(now, 0, 1, 2, 3)
    shows(now, "wide", main=(0, 1, 2, 3))
    now.apply(PodDeleted("uid-wide"))
    knows_not(now, "wide")

    now.apply(ChipsRead(unhealthy=0, busy=0b100))
    passes(now)
    during = make_affinity(now.ledger)
    offered = occupancy.unclaimed_chips(now.ledger)
    now.apply(ChipsRead(unhealthy=0, busy=0))
    passes(now)

    assert (during.held, during.releasing) == ((2,), (2,))
    assert offered == 0b11111011
    assert make_affinity(now.ledger).held == ()
    assert not now.ledger.slots
