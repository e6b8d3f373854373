"""The lease changes hands by a table, and never is in two hands at once."""

from dataclasses import replace

import pytest

from extender.election import lease as lease_machine
from extender.election.lease import (
    Effect,
    Event,
    LeaseConfig,
    LeaseRead,
    LeaseWritten,
    Phase,
    ReadLease,
    State,
    Ticked,
    WriteLease,
    WriteRefused,
)
from kube.objects import Lease, LeaseSpec, Meta

CONFIG = LeaseConfig(identity="me", lease_s=15.0, bind_s=12.0)
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
    "who waits looks": (WAITING, Ticked(), Phase.WAITING, (ReadLease(),)),
    "there is none: made": (
        *(WAITING, LeaseRead(lease=None), Phase.WAITING),
        (WriteLease(over=None),),
    ),
    "a free one is taken": (
        *(EXPIRED, LeaseRead(lease=lease("")), Phase.WAITING),
        (WriteLease(over=lease("")),),
    ),
    "one that was given back is taken": (
        *(FRESH, LeaseRead(lease=lease(None)), Phase.WAITING),
        (WriteLease(over=lease(None)),),
    ),
    "our own is taken": (
        *(WAITING, LeaseRead(lease=MINE), Phase.WAITING),
        (WriteLease(over=MINE),),
    ),
    "another's is left alone": (FRESH, LeaseRead(lease=THEIRS), Phase.WAITING, ()),
    "another's that was renewed is left alone": (
        *(EXPIRED, LeaseRead(lease=lease("other", "4")), Phase.WAITING),
        (),
    ),
    "another's that has run out is taken": (
        *(EXPIRED, LeaseRead(lease=THEIRS), Phase.WAITING),
        (WriteLease(over=THEIRS),),
    ),
    "ours at once": (
        *(WAITING, LeaseWritten(lease=MINE, sent_s=NOW_S), Phase.LEADING),
        (),
    ),
    "ours, when binds may still come": (
        replace(WAITING, settled_s=NOW_S + 12),
        *(LeaseWritten(lease=MINE, sent_s=NOW_S), Phase.SETTLING, ()),
    ),
    "ours, but the answer came too late": (
        *(WAITING, LeaseWritten(lease=MINE, sent_s=NOW_S - 10), Phase.SETTLING),
        (),
    ),
    "somebody was faster": (EXPIRED, WriteRefused(), Phase.WAITING, (ReadLease(),)),
    "settling goes on": (
        *(SETTLING, Ticked(), Phase.SETTLING),
        (WriteLease(over=MINE),),
    ),
    "settled": (
        *(SETTLED, Ticked(), Phase.LEADING),
        (WriteLease(over=MINE),),
    ),
    "settled, but not renewed": (
        *(replace(SETTLED, valid_s=NOW_S), Ticked(), Phase.SETTLING),
        (WriteLease(over=MINE),),
    ),
    "settling is renewed": (
        *(SETTLING, LeaseWritten(lease=MINE, sent_s=NOW_S), Phase.SETTLING),
        (),
    ),
    "settling meets another writer": (
        SETTLING,
        WriteRefused(),
        Phase.SETTLING,
        (ReadLease(),),
    ),
    "settling finds its own": (
        *(SETTLING, LeaseRead(lease=lease("me", "5")), Phase.SETTLING),
        (WriteLease(over=lease("me", "5")),),
    ),
    "settling finds another's": (SETTLING, LeaseRead(lease=THEIRS), Phase.WAITING, ()),
    "a leader renews": (LEADING, Ticked(), Phase.LEADING, (WriteLease(over=MINE),)),
    "a leader without an answer tries on": (
        *(LAPSED, Ticked(), Phase.LEADING),
        (WriteLease(over=MINE),),
    ),
    "and leads again if nobody has touched the lease": (
        *(LAPSED, LeaseWritten(lease=MINE, sent_s=NOW_S), Phase.LEADING),
        (),
    ),
    "a leader meets another writer": (
        LEADING,
        WriteRefused(),
        Phase.LEADING,
        (ReadLease(),),
    ),
    "a leader finds its own, with a new label": (
        *(LAPSED, LeaseRead(lease=lease("me", "6")), Phase.LEADING),
        (WriteLease(over=lease("me", "6")),),
    ),
    "a leader finds another's": (
        LEADING,
        LeaseRead(lease=THEIRS),
        Phase.WAITING,
        (),
    ),
    "a leader finds it given back": (
        *(LAPSED, LeaseRead(lease=lease(None)), Phase.WAITING),
        (),
    ),
    "a leader finds its own, which was another's meanwhile": (
        *(LAPSED, LeaseRead(lease=lease("me", "7", transitions=2)), Phase.WAITING),
        (),
    ),
    "a leader finds it removed": (
        *(LEADING, LeaseRead(lease=None), Phase.LEADING),
        (WriteLease(over=None),),
    ),
    "a leader finds it removed, too late to know": (
        *(LAPSED, LeaseRead(lease=None), Phase.WAITING),
        (),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_lease_changes_hands_by_the_table(name: str) -> None:
    state, event, phase, effects = TABLE[name]

    after, found = lease_machine.step(state, event, NOW_S, CONFIG)

    assert (after.phase, found) == (phase, effects)


def test_the_table_has_every_event_in_every_phase() -> None:
    there = {(state.phase, type(event)) for state, event, _, _ in TABLE.values()}

    assert there == {
        (p, e) for p in Phase for e in (Ticked, LeaseRead, LeaseWritten, WriteRefused)
    }


def test_who_takes_from_one_that_is_silent_waits_for_its_binds() -> None:
    taking, _ = lease_machine.step(EXPIRED, LeaseRead(lease=THEIRS), NOW_S, CONFIG)
    # The answer is lost, but the lease is ours when we look again.
    looking, _ = lease_machine.step(taking, Ticked(), NOW_S + 2, CONFIG)
    again, _ = lease_machine.step(looking, LeaseRead(lease=MINE), NOW_S + 2, CONFIG)
    ours, effects = lease_machine.step(
        again, LeaseWritten(lease=MINE, sent_s=NOW_S + 2), NOW_S + 2, CONFIG
    )

    assert (ours.phase, ours.settled_s, effects) == (Phase.SETTLING, NOW_S + 12, ())


def test_a_lease_removed_under_its_holder_is_used_when_that_one_is_through() -> None:
    taking, effects = lease_machine.step(FRESH, LeaseRead(lease=None), NOW_S, CONFIG)

    assert (taking.settled_s, effects) == (NOW_S + 10 + 12, (WriteLease(over=None),))


def test_who_starts_again_waits_for_what_its_predecessor_waited_for() -> None:
    found = LeaseRead(lease=MINE, age_s=4)

    taking, _ = lease_machine.step(WAITING, found, NOW_S, CONFIG)

    assert taking.settled_s == NOW_S + 8


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (WAITING, "no extender leads yet"),
        (FRESH, "other leads"),
        (SETTLING, "binds of the extender that led before may arrive for 1 s"),
        (LAPSED, "the lease could not be renewed in time"),
        (LEADING, None),
    ],
)
def test_who_does_not_decide_says_why(state: State, text: str | None) -> None:
    assert lease_machine.why_not_leading(state, NOW_S) == text
