"""Every phase of making room against everything that can happen then."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from extender.preemption.attempt import (
    Answered,
    Attempt,
    AttemptEnded,
    Attempts,
    AttemptStarted,
    ChipsFree,
    ClearNomination,
    Effect,
    Event,
    Evict,
    Limits,
    Nominate,
    Outcome,
    Phase,
    Ticked,
    Victim,
    WakeScheduler,
    announce,
    step,
    tell_timed_out,
    tell_victim,
)

LIMITS = Limits(ask_s=15, leave_s=300, ready_s=60, again_s=5, spared_s=60, rest_s=300)
A, B = (Victim(uid=f"uid-{x}", namespace="default", name=x) for x in "ab")
ROOM = Attempt(
    beneficiary="uid-high",
    title="pod default/high",
    priority=10,
    victims=(A, B),
)
#: Nobody has to be evicted: who is in the way is ending already.
ENDING = replace(ROOM, title="", victims=())
WANTING = ROOM.beneficiary
#: Where each phase begins, and how long it may last.
BEGINS = {"asking": (0.0, 15), "leaving": (10.0, 300), "ready": (100.0, 60)}


def started(attempt: Attempt) -> AttemptStarted:
    return AttemptStarted(
        attempt=attempt, resource="huawei.com/Ascend910", chips={"n1": 0b1111}
    )


def answered(victim: Victim, outcome: Outcome, number: int = 1) -> Answered:
    return Answered(beneficiary=WANTING, number=number, uid=victim.uid, outcome=outcome)


def evicted(victim: Victim, *, rehearse: bool = False, number: int = 1) -> Evict:
    return Evict(beneficiary=WANTING, number=number, victim=victim, rehearse=rehearse)


def happen(book: Attempts, event: Event, now_s: float) -> tuple[Effect, ...]:
    return step(book, event, now_s, LIMITS)


def in_phase(phase: str) -> Attempts:
    """A book with a room that is so far; of asking, one answer has come."""
    book = Attempts()
    happen(book, started(ROOM), 0)
    happen(book, answered(A, Outcome.YES), 1)
    if phase in ("leaving", "ready"):
        happen(book, answered(B, Outcome.YES), 10)
    if phase == "ready":
        happen(book, ChipsFree(beneficiary=WANTING), 100)
    return book


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    event: Event
    effects: tuple[Effect, ...] = ()
    #: "" is over
    then: str
    protected: tuple[str, ...] = ()
    rests: bool = False


GIVE_UP = ClearNomination(beneficiary=WANTING)
CASES: dict[str, tuple[Case, ...]] = {
    "asking": (
        Case(
            event=answered(B, Outcome.YES),
            effects=(announce(ROOM), evicted(A), evicted(B)),
            then="leaving",
        ),
        Case(
            event=answered(B, Outcome.GONE),
            effects=(announce(ROOM), evicted(A), evicted(B)),
            then="leaving",
        ),
        Case(
            event=answered(B, Outcome.BUDGET),
            effects=(GIVE_UP, WakeScheduler()),
            then="",
            protected=("uid-b",),
        ),
        Case(
            event=answered(B, Outcome.FAILED), effects=(GIVE_UP,), then="", rests=True
        ),
        Case(event=answered(A, Outcome.BUDGET), then="asking"),
        Case(event=ChipsFree(beneficiary=WANTING), then="asking"),
        Case(event=AttemptEnded(beneficiary=WANTING), effects=(GIVE_UP,), then=""),
        Case(event=started(ROOM), then="asking"),
    ),
    "leaving": (
        Case(
            event=answered(A, Outcome.YES),
            effects=(tell_victim(ROOM, A),),
            then="leaving",
        ),
        Case(event=answered(A, Outcome.GONE), then="leaving"),
        Case(event=answered(A, Outcome.BUDGET), then="leaving"),
        Case(event=answered(A, Outcome.FAILED), then="leaving"),
        Case(
            event=ChipsFree(beneficiary=WANTING),
            effects=(WakeScheduler(),),
            then="ready",
        ),
        Case(event=AttemptEnded(beneficiary=WANTING), effects=(GIVE_UP,), then=""),
        Case(event=started(ROOM), then="leaving"),
    ),
    "ready": (
        Case(
            event=answered(A, Outcome.YES),
            effects=(tell_victim(ROOM, A),),
            then="ready",
        ),
        Case(event=answered(A, Outcome.FAILED), then="ready"),
        Case(event=ChipsFree(beneficiary=WANTING), then="ready"),
        Case(event=AttemptEnded(beneficiary=WANTING), effects=(GIVE_UP,), then=""),
        Case(event=started(ROOM), then="ready"),
    ),
}
LATE = {
    "asking": ((GIVE_UP,), 5.0),
    "leaving": ((GIVE_UP, tell_timed_out(ROOM, Limits())), 300.0),
    "ready": ((GIVE_UP,), 300.0),
}


def cases() -> Iterator[tuple[str, Case]]:
    return ((phase, case) for phase, found in CASES.items() for case in found)


@pytest.mark.parametrize(("phase", "case"), list(cases()))
def test_what_happens_in_a_phase_has_what_follows(phase: str, case: Case) -> None:
    book = in_phase(phase)

    effects = happen(book, case.event, 101)

    running = book.running.get(WANTING)
    assert effects == case.effects
    assert (running.phase.name.lower() if running else "") == case.then
    assert tuple(book.protected) == case.protected
    assert bool(book.backing_off) is case.rests


@pytest.mark.parametrize("phase", CASES)
def test_no_phase_outlasts_its_time(phase: str) -> None:
    begun_s, lasts_s = BEGINS[phase]
    book = in_phase(phase)
    effects, rests_s = LATE[phase]

    assert happen(book, Ticked(), begun_s + lasts_s - 1) == ()
    assert happen(book, Ticked(), begun_s + lasts_s) == effects

    assert book.running == {}
    assert book.backing_off == {WANTING: begun_s + lasts_s + rests_s}


def test_a_room_begins_by_asking_for_every_victim() -> None:
    book = Attempts()

    effects = happen(book, started(ROOM), 0)

    asked = (evicted(A, rehearse=True), evicted(B, rehearse=True))
    assert effects == (Nominate(started=started(ROOM)), *asked)
    assert book.running[WANTING].phase is Phase.ASKING


def test_for_who_is_ending_anyway_it_is_only_waited() -> None:
    book = Attempts()

    assert happen(book, started(ENDING), 0) == (Nominate(started=started(ENDING)),)

    assert book.running[WANTING].phase is Phase.LEAVING
    assert happen(book, ChipsFree(beneficiary=WANTING), 1) == (WakeScheduler(),)


@pytest.mark.parametrize("outcome", [Outcome.BUDGET, Outcome.FAILED])
def test_who_could_not_be_evicted_is_evicted_a_little_later(outcome: Outcome) -> None:
    book = in_phase("leaving")
    happen(book, answered(A, outcome), 20)

    assert happen(book, Ticked(), 24) == ()
    assert happen(book, Ticked(), 25) == (evicted(A),)
    assert happen(book, Ticked(), 31) == ()  # the answer has not come yet
    assert happen(book, answered(A, Outcome.YES), 32) == (tell_victim(ROOM, A),)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_late_answer_to_an_earlier_attempt_says_nothing(outcome: Outcome) -> None:
    """The eviction of a victim may fail after its dry run of another attempt."""
    book = in_phase("asking")
    happen(book, Ticked(), 15)
    happen(book, Ticked(), 20)
    happen(book, started(ROOM), 20)

    assert happen(book, answered(B, outcome), 21) == ()
    happen(book, answered(A, Outcome.YES, 2), 21)
    happen(book, answered(B, Outcome.YES, 2), 21)
    assert happen(book, answered(B, outcome), 22) == ()
    happen(book, answered(B, Outcome.FAILED, 2), 22)
    assert happen(book, Ticked(), 27) == (evicted(B, number=2),)


@pytest.mark.parametrize(
    "event",
    [
        answered(A, Outcome.YES),
        ChipsFree(beneficiary=WANTING),
        AttemptEnded(beneficiary=WANTING),
        Ticked(),
    ],
)
def test_of_a_room_that_is_not_there_nothing_follows(event: Event) -> None:
    assert happen(Attempts(), event, 0) == ()


def test_the_scheduler_tries_again_when_a_pause_is_over() -> None:
    book = in_phase("asking")
    happen(book, answered(B, Outcome.BUDGET), 2)

    assert happen(book, Ticked(), 61) == ()
    assert happen(book, Ticked(), 62) == (WakeScheduler(),)
    assert (book.protected, book.backing_off) == ({}, {})


def test_four_victims_are_three_names_and_how_many_more() -> None:
    some = tuple(Victim(uid=x, namespace="default", name=x) for x in "abcd")
    attempt = replace(ROOM, victims=some)

    assert attempt.victim_names == "default/a, default/b, default/c and 1 more"
    assert ROOM.victim_names == "default/a, default/b"
