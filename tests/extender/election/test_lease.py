"""The lease changes hands by a table, and never is in two hands at once."""

from dataclasses import replace

import pytest

from extender.election import lease as lease_machine
from extender.election.lease import (
    Begin,
    Effect,
    End,
    Event,
    Found,
    Phase,
    Read,
    Refused,
    State,
    Terms,
    Ticked,
    Write,
    Written,
)
from kube.objects import Lease, LeaseSpec, Meta

TERMS = Terms(me="me", lease_s=15.0, bind_s=12.0)
NOW_S = 1000.0


def lease(holder: str | None, version: str = "1", *, transitions: int = 0) -> Lease:
    return Lease(
        metadata=Meta(name="l", namespace="ns", resource_version=version),
        spec=LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=15,
            lease_transitions=transitions,
        ),
    )


MINE = lease("me", "2")
THEIRS = lease("other", "3")
LAPSED = State(phase=Phase.LEADING, lease=MINE, valid_s=NOW_S)
LEADING = replace(LAPSED, valid_s=NOW_S + 10)
SETTLING = State(
    phase=Phase.SETTLING, lease=MINE, settled_s=NOW_S + 1, valid_s=NOW_S + 10
)
SETTLED = replace(SETTLING, settled_s=NOW_S)
WAITING = State()
FRESH = State(lease=THEIRS, since_s=NOW_S - 14.9)
EXPIRED = State(lease=THEIRS, since_s=NOW_S - 15)

#: Shape: {name: (state, event, next phase, effects)}.
TABLE: dict[str, tuple[State, Event, Phase, tuple[Effect, ...]]] = {
    "who waits looks": (WAITING, Ticked(), Phase.WAITING, (Read(),)),
    "there is none: made": (
        *(WAITING, Found(lease=None), Phase.WAITING),
        (Write(over=None),),
    ),
    "a free one is taken": (
        *(EXPIRED, Found(lease=lease("")), Phase.WAITING),
        (Write(over=lease("")),),
    ),
    "one that was given back is taken": (
        *(FRESH, Found(lease=lease(None)), Phase.WAITING),
        (Write(over=lease(None)),),
    ),
    "our own is taken": (
        *(WAITING, Found(lease=MINE), Phase.WAITING),
        (Write(over=MINE),),
    ),
    "another's is left alone": (FRESH, Found(lease=THEIRS), Phase.WAITING, ()),
    "another's that was renewed is left alone": (
        *(EXPIRED, Found(lease=lease("other", "4")), Phase.WAITING),
        (),
    ),
    "another's that has run out is taken": (
        *(EXPIRED, Found(lease=THEIRS), Phase.WAITING),
        (Write(over=THEIRS),),
    ),
    "ours at once": (
        *(WAITING, Written(lease=MINE, sent_s=NOW_S), Phase.LEADING),
        (Begin(),),
    ),
    "ours, when binds may still come": (
        replace(WAITING, settled_s=NOW_S + 12),
        *(Written(lease=MINE, sent_s=NOW_S), Phase.SETTLING, ()),
    ),
    "ours, but the answer came too late": (
        *(WAITING, Written(lease=MINE, sent_s=NOW_S - 10), Phase.SETTLING),
        (),
    ),
    "somebody was faster": (EXPIRED, Refused(), Phase.WAITING, (Read(),)),
    "settling goes on": (
        *(SETTLING, Ticked(), Phase.SETTLING),
        (Write(over=MINE),),
    ),
    "settled": (
        *(SETTLED, Ticked(), Phase.LEADING),
        (Begin(), Write(over=MINE)),
    ),
    "settled, but not renewed": (
        *(replace(SETTLED, valid_s=NOW_S), Ticked(), Phase.SETTLING),
        (Write(over=MINE),),
    ),
    "settling is renewed": (
        *(SETTLING, Written(lease=MINE, sent_s=NOW_S), Phase.SETTLING),
        (),
    ),
    "settling meets another writer": (SETTLING, Refused(), Phase.SETTLING, (Read(),)),
    "settling finds its own": (
        *(SETTLING, Found(lease=lease("me", "5")), Phase.SETTLING),
        (Write(over=lease("me", "5")),),
    ),
    "settling finds another's": (SETTLING, Found(lease=THEIRS), Phase.WAITING, ()),
    "a leader renews": (LEADING, Ticked(), Phase.LEADING, (Write(over=MINE),)),
    "a leader without an answer tries on": (
        *(LAPSED, Ticked(), Phase.LEADING),
        (Write(over=MINE),),
    ),
    "and leads again if nobody has touched the lease": (
        *(LAPSED, Written(lease=MINE, sent_s=NOW_S), Phase.LEADING),
        (),
    ),
    "a leader meets another writer": (LEADING, Refused(), Phase.LEADING, (Read(),)),
    "a leader finds its own, with a new label": (
        *(LAPSED, Found(lease=lease("me", "6")), Phase.LEADING),
        (Write(over=lease("me", "6")),),
    ),
    "a leader finds another's": (LEADING, Found(lease=THEIRS), Phase.WAITING, (End(),)),
    "a leader finds it given back": (
        *(LAPSED, Found(lease=lease(None)), Phase.WAITING),
        (End(),),
    ),
    "a leader finds its own, which was another's meanwhile": (
        *(LAPSED, Found(lease=lease("me", "7", transitions=2)), Phase.WAITING),
        (End(),),
    ),
    "a leader finds it removed": (
        *(LEADING, Found(lease=None), Phase.LEADING),
        (Write(over=None),),
    ),
    "a leader finds it removed, too late to know": (
        *(LAPSED, Found(lease=None), Phase.WAITING),
        (End(),),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_lease_changes_hands_by_the_table(name: str) -> None:
    state, event, phase, effects = TABLE[name]

    after, found = lease_machine.step(state, event, NOW_S, TERMS)

    assert (after.phase, found) == (phase, effects)


def test_the_table_has_every_event_in_every_phase() -> None:
    there = {(state.phase, type(event)) for state, event, _, _ in TABLE.values()}

    assert there == {(p, e) for p in Phase for e in (Ticked, Found, Written, Refused)}


def test_who_takes_from_one_that_is_silent_waits_for_its_binds() -> None:
    taking, _ = lease_machine.step(EXPIRED, Found(lease=THEIRS), NOW_S, TERMS)
    # The answer is lost, but the lease is ours when we look again.
    looking, _ = lease_machine.step(taking, Ticked(), NOW_S + 2, TERMS)
    again, _ = lease_machine.step(looking, Found(lease=MINE), NOW_S + 2, TERMS)
    ours, effects = lease_machine.step(
        again, Written(lease=MINE, sent_s=NOW_S + 2), NOW_S + 2, TERMS
    )

    assert (ours.phase, ours.settled_s, effects) == (Phase.SETTLING, NOW_S + 12, ())


def test_a_lease_removed_under_its_holder_is_used_when_that_one_is_through() -> None:
    taking, effects = lease_machine.step(FRESH, Found(lease=None), NOW_S, TERMS)

    assert (taking.settled_s, effects) == (NOW_S + 10 + 12, (Write(over=None),))


def test_who_starts_again_waits_for_what_its_predecessor_waited_for() -> None:
    found = Found(lease=MINE, age_s=4)

    taking, _ = lease_machine.step(WAITING, found, NOW_S, TERMS)

    assert taking.settled_s == NOW_S + 8


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (WAITING, "no extender leads yet"),
        (FRESH, "other leads"),
        (SETTLING, "binds of the extender that led before may arrive for 1 s"),
        (LAPSED, "the lease could not be renewed in time"),
        (LEADING, None),
    ],
)
def test_who_does_not_decide_says_why(state: State, said: str | None) -> None:
    assert lease_machine.why_not(state, NOW_S) == said
