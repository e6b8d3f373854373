"""Chips that are kept until the successors of pods come, which a fault sent away."""

import pytest

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.events import Ended, PlaceCleared, ReservationEnded
from extender.cache.reservations import REVIEW_S, Owner, Reservation
from tests.support.caches import all_reservations, apply, cluster, free, kept
from tests.support.clock import NOW_S
from tests.support.watched import (
    BOTH,
    CARD,
    RESOURCE,
    gone,
    member,
    pod,
    pod_update,
    report,
    tenant,
)

JOB = "Job of pods/default/j"
MOVE = Owner.RESCHEDULING


def place(kept_for: str, mask: int = 0b11, **parts: str) -> Reservation:
    return kept(kept_for, "n1", mask, owner=MOVE, **parts)  # type: ignore[arg-type]  # parts by name


def cleared(cache: Cache, *changes: events.Change) -> list[str]:
    """For whom kept chips are shown to be clear by these events."""
    effects = apply(cache, *changes)
    return [str(e.kept_for) for e in effects if isinstance(e, PlaceCleared)]


def test_a_place_outlives_the_pod_that_is_a_job_by_itself() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)))
    apply(cache, place("uid-a"), tenant("a", "n1", (0, 1)), *gone("a"))
    apply(cache, report("n1"))

    assert all_reservations(cache) == [place("uid-a")]
    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_a_place_outlives_the_last_pod_of_its_job() -> None:
    cache = cluster(member("a", node="n1", phase="Running"))
    apply(cache, place(JOB), *gone("a"))

    assert JOB not in cache.gangs
    assert all_reservations(cache) == [place(JOB)]


def test_a_place_with_a_claim_ends_with_its_pod() -> None:
    cache = cluster(pod_update("b", 2))
    taken = kept("uid-b", "n1", 0b11, owner=MOVE, shape=pod("b", 2).shape)
    apply(cache, taken)

    effects = apply(cache, *gone("b"))

    assert ReservationEnded(reservation=taken, why=Ended.GONE) in effects
    assert all_reservations(cache) == []


def test_a_place_ends_if_it_is_not_made_again_in_time() -> None:
    cache = cluster()
    apply(cache, place(JOB))

    effects = apply(cache, events.Ticked(), now_s=NOW_S + REVIEW_S)

    ended = ReservationEnded(reservation=place(JOB), why=Ended.EXPIRED)
    assert ended in effects
    assert all_reservations(cache) == []


def test_a_bind_that_has_not_happened_gives_the_chips_back_to_the_move() -> None:
    cache = cluster(pod_update("b", 2))
    sent = kept("uid-b", "n1", 0b11, shape=pod("b", 2).shape)
    apply(cache, sent._replace(freed_until_s=NOW_S + 9, freed_by=MOVE))

    apply(cache, events.BindVoided(uid="uid-b"))

    (left,) = all_reservations(cache)
    assert (left.owner, left.until_s, left.claim) == (MOVE, NOW_S + 9, sent.claim)


def test_places_on_both_lines_of_a_node_are_kept_beside_each_other() -> None:
    cache = cluster(lines=BOTH)
    on_cards = place(JOB, 0b1 << 8, resource=CARD)
    apply(cache, place(JOB), on_cards)

    assert set(all_reservations(cache)) == {place(JOB), on_cards}


def test_the_place_of_a_node_is_replaced_by_a_smaller_one() -> None:
    cache = cluster()
    apply(cache, place(JOB, 0b1111), place(JOB, 0b11))

    assert all_reservations(cache) == [place(JOB, 0b11)]


def test_a_place_is_clear_once_nothing_occupies_its_chips() -> None:
    cache = cluster(tenant("a", "n1", (0, 1)), report("n1", held=(0, 1)))

    assert cleared(cache, place("uid-a")) == []
    assert not cache.is_cleared(place("uid-a"))
    assert cleared(cache, *gone("a"), report("n1", releasing=(0, 1))) == []
    assert cleared(cache, report("n1", unhealthy=(1,))) == []

    assert cleared(cache, report("n1")) == ["uid-a"]
    assert cache.is_cleared(place("uid-a"))


@pytest.mark.parametrize("owner", [Owner.PREEMPTION, Owner.BIND])
def test_of_other_reservations_it_is_not_told(owner: Owner) -> None:
    shape = pod("b", 2).shape if owner is Owner.BIND else None
    made = kept("uid-b", "n1", 0b11, owner=owner, shape=shape)
    cache = cluster(pod_update("b", 2))

    assert cleared(cache, made, report("n1", held=(7,)), report("n1")) == []


def test_moves_and_chips_that_preemption_frees_are_counted_apart() -> None:
    cache = cluster(nodes=("n1", "n2"))
    freed = kept("uid-x", "n2", 0b1, owner=Owner.PREEMPTION)
    elsewhere = replace_node(place(JOB), "n2", 0b10)
    apply(cache, place(JOB), elsewhere, place("uid-a", 0b1 << 4), freed)

    counts = cache.counts()

    assert (counts["moving_jobs"], counts["nominations"]) == (2, 1)


def replace_node(reservation: Reservation, node: str, mask: int) -> Reservation:
    return reservation._replace(node=node, chips=mask, resource=RESOURCE)


def test_the_pod_that_takes_a_place_up_has_it_alone() -> None:
    """Others of its job get none of these chips."""
    cache = cluster(pod_update("b", 2))
    apply(cache, place("uid-b"))
    taken = kept("uid-b", "n1", 0b11, owner=MOVE, shape=pod("b", 2).shape)
    apply(cache, events.Released(kept_for="uid-b", owner=MOVE), taken)

    outcome = cache.step(kept("uid-c", "n1", 0b10), NOW_S)

    assert outcome.conflict is not None
    assert cache.reservation("uid-b") == taken
