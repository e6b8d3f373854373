"""Stages of the move of one job, and the limits that keep a job from moving again.

The steps of one move, as in `departures`; `machine` puts them together.

    stage    event                    result
    -------  -----------------------  --------------------------------------------------
    any      pods are to be evicted   ENDS: what that does to their job is read
    ENDS     EndsRead                 the job is judged again, with what was read
    any      all places are found     KEEPING: their chips are reserved
    KEEPING  PlacesKept               WRITING; not kept: as before, judged again later
    WRITING  Written                  MOVING: pods are asked to go (`departures`)
    WRITING  not Written, thrice      as before; the places are released, and told
    MOVING   each pod is replaced     RESTING: the record has only the history
    MOVING   nothing for `keep_s`     RESTING: places are released, and the job is told
    RESTING  the history is old       forgotten, and the record is deleted
"""

from collections.abc import Mapping
from dataclasses import replace

from extender.gang.fault_policy import Switch
from extender.rescheduling import departures
from extender.rescheduling.assessment import Assessment
from extender.rescheduling.departures import After
from extender.rescheduling.moves import (
    Departure,
    Faults,
    KeepPlaces,
    Limits,
    Move,
    MoveEffect,
    MoveFacts,
    MoveRecord,
    Past,
    ReadEnds,
    Recovered,
    ReleasePlaces,
    Stage,
    Step,
)
from scheduler_core.rescheduling.ladder import Rung

#: Why a job waits, or its places are given back.
UNWRITTEN = "its record cannot be written"


def facts_of(move: Move | None, now_s: float, limits: Limits) -> MoveFacts:
    """Return what a judge has to know of the move of a job."""
    if move is None:
        return MoveFacts()
    return MoveFacts(
        avoid=frozenset(
            node
            for past in recent(move.history, now_s, limits)
            for node, _, _ in past.faults
        ),
        ends=move.ends,
        groups=move.groups,
        kept_places=tuple(
            place
            for place in move.unasked
            if place.is_kept and place.uid not in move.committed
        ),
        asked=move.committed,
        is_gathering=move.is_gathering,
    )


def recent(history: tuple[Past, ...], now_s: float, limits: Limits) -> tuple[Past, ...]:
    """Return the past that still counts."""
    return tuple(past for past in history if now_s < past.at_s + limits.memory_s)


def why_rests(move: Move | None, faults: Faults, now_s: float, limits: Limits) -> str:
    """Return why a job is not moved again yet, after what it has been through."""
    history = () if move is None else recent(move.history, now_s, limits)
    if move is None or not history:
        return ""
    count = sum(past.shares_chip(faults) for past in history)
    if count >= limits.most_moves:
        return (
            f"pods have left the same chip {limits.most_moves} times within "
            f"{limits.memory_s:.0f} s"
        )
    if move.is_open:
        return ""  # a second fault joins the move
    pause_s = limits.first_move_s * 2.0 ** (len(history) - 1)
    if now_s < history[-1].at_s + min(pause_s, limits.longest_move_s):
        return "its job has moved a short while ago"
    return ""


def read_ends(
    move: Move, uids: frozenset[str], now_s: float, *, asks_budgets: bool = False
) -> After:
    """Have it read what evicting pods together does to their job."""
    moved = replace(
        move,
        stage=Stage.ENDS,
        stage_s=now_s,
        reading=uids,
        is_late=False,
        ends={},
        groups={},
    )
    effect = ReadEnds(job=move.job, uids=uids, asks_budgets=asks_budgets)
    return moved, (effect,)


def step_back(move: Move) -> Move:
    """Return the move without what was to be added to it."""
    return replace(
        move,
        stage=Stage.MOVING if move.departures else Stage.RESTING,
        reading=frozenset(),
        is_late=False,
        ends={},
        groups={},
        addition=(),
        is_whole=move.is_whole and bool(move.departures),
        adds_all=False,
        past=None,
    )


def keep(
    move: Move,
    assessment: Assessment,
    causes: Mapping[str, str],
    faults: Faults,
    now_s: float,
) -> After:
    """Have places reserved for successors, besides those of pods that go in any case.

    They replace those of all other pods that were not asked yet.
    """
    before, committed = move.unasked, move.committed
    moved = replace(
        step_back(move),
        stage=Stage.KEEPING,
        stage_s=now_s,
        owner=assessment.owner,
        switch=assessment.switch,
        causes={**move.causes, **causes},
        adds_all=assessment.rung is Rung.JOB,
        addition=assessment.kept_places,
        past=Past(at_s=now_s, faults=faults),
    )
    going = (d.place for uid, d in move.departures.items() if uid in committed)
    places = tuple(p for p in (*assessment.kept_places, *going) if p.is_kept)
    if not places and not any(place.is_kept for place in before):
        return record_next(moved, now_s), ()
    return moved, (KeepPlaces(job=move.job, places=places),)


def record_next(move: Move, now_s: float) -> Move:
    """Return the move once its places are kept: its record is to be written.

    Pods that may still stay have their places among those that are added.
    """
    committed = move.committed
    going = {uid: d for uid, d in move.departures.items() if uid in committed}
    return replace(
        move,
        departures=going,
        queue=(),
        stage=Stage.WRITING,
        stage_s=now_s,
        write=0,  # an earlier record may still be under way
        write_again_s=0.0,
        failures=0,
    )


def set_off(move: Move, now_s: float) -> Move:
    """Return the move once its record is written: pods are to be asked."""
    going = {**departures.begin(move.addition), **move.departures}
    past = move.past if move.addition else None
    added = (past,) if past is not None and past.faults else ()
    return replace(
        step_back(move),
        stage=Stage.MOVING,
        stage_s=now_s,
        departures=going,
        queue=departures.line_up(going),
        is_whole=move.goes_whole,
        history=(*move.history, *added),
        progress_s=now_s,
    )


def abandon(move: Move) -> After:
    """Give back the places whose record could not be written.

    Of a move that has begun, some may be of pods that had them before.
    """
    places = [place for place in move.addition if place.is_kept]
    effects: tuple[MoveEffect, ...] = ()
    if places:
        uids = frozenset(place.uid for place in places)
        effects = (ReleasePlaces(job=move.job, uids=uids),)
    if places and move.has_begun:
        effects = (departures.tell_lost(move, places, UNWRITTEN), *effects)
    return step_back(replace(move, failures=0)), effects


def is_over(record: MoveRecord, now_s: float, limits: Limits) -> bool:
    """Return whether the move of a record has ended in any case.

    Its record is there all the same if it could not be deleted, or if no extender has
    evicted pods since.
    """
    newest_s = max((past.at_s for past in record.history), default=now_s)
    return now_s >= newest_s + limits.grace_s + limits.keep_s + limits.memory_s


def recover(event: Recovered, now_s: float, limits: Limits) -> After:
    """Return the move of a record that an earlier extender has written.

    A move that has not begun is dropped: the faults may be over, and if not the job is
    judged at once. So are single pods that may not have been asked. Times of the record
    are those of another process: none counts as later than now. A pod that is being
    deleted was asked when its move began, or soon after.
    """
    record = event.record
    running = sum(place.uid in event.running for place in record.places)
    has_begun = running < len(record.places)
    begun_s = max((past.at_s for past in record.history), default=now_s)
    grace_s = 0.0 if record.switch is Switch.FORCE else limits.grace_s
    going, left_out = dict[str, Departure](), set[str]()
    for place in record.places if has_begun else ():
        asked_s = min(record.asked_s.get(place.uid, begun_s), now_s)
        if place.uid in event.running:
            if record.is_whole or place.uid in record.asked_s or not place.is_evicted:
                going[place.uid] = Departure(place=place)
            else:
                left_out.add(place.uid)
        elif place.uid in event.ending:
            going[place.uid] = Departure(
                place=place,
                step=Step.LEAVING,
                first_ask_s=asked_s,
                again_s=asked_s + grace_s,
            )
        elif place.is_kept:
            going[place.uid] = Departure(place=place, step=Step.GONE)
    is_dropped = bool(record.places) and not has_begun
    pasts = record.history[:-1] if is_dropped else record.history
    history = tuple(replace(past, at_s=min(past.at_s, now_s)) for past in pasts)
    history = recent(history, now_s, limits)
    places = tuple(d.place for d in going.values() if d.place.is_kept)
    stage = Stage.MOVING if record.places or not history else Stage.RESTING
    moved = Move(
        job=record.job,
        owner=record.owner,
        switch=record.switch,
        is_whole=record.is_whole,
        stage=Stage.KEEPING if places else stage,
        stage_s=now_s,
        departures=going,
        queue=departures.line_up(going),
        history=history,
        is_recorded=True,
        is_outdated=bool(left_out),
        is_recalled=True,
        progress_s=now_s,
    )
    if not places:
        return moved, ()
    return moved, (KeepPlaces(job=record.job, places=places, is_partial=True),)
