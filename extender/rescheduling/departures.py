"""Pods of a move on their way: asked to go, gone, and replaced.

The steps of one move, which `machine` puts together. All are pure: a move goes in, the
move after it comes out, with effects to carry out in order.

    a pod that goes   event                    result
    ----------------  -----------------------  -----------------------------------------
    STAYS             its turn                 ASKED: its end is asked for
    STAYS             PodLeaving               LEAVING: its controller ends it
    STAYS             its controller is late   it is asked, once its job survives that
    ASKED             Answered YES             LEAVING
    ASKED             BUDGET or FAILED         asked again after 1, 2, 4 ... 60 s
    ASKED or LEAVING  after `grace_s`          asked with grace 0, again each 60 s
    not GONE          PodEnded, or GONE        GONE; over if no place is kept
    GONE              bound                    over: the chips are the successor's
    any               its place is lost        over: told, and the chips are released
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from extender.gang.fault_policy import Switch
from extender.preemption.attempt import Outcome
from extender.rescheduling import assessment
from extender.rescheduling.moves import (
    Answered,
    Bound,
    Departure,
    EndPod,
    KeptPlace,
    Limits,
    Move,
    MoveEffect,
    PlacesEnded,
    ReleasePlaces,
    Stage,
    Step,
    Tell,
    TellJob,
)

#: A move after something has happened, and the effects of that.
After = tuple[Move, tuple[MoveEffect, ...]]

#: Reasons of events on pods that go, and on their jobs.
EVICTED = "AscendFaultEvicted"
WAITS = "AscendMoveWaits"
LOST = "AscendPlaceLost"

_OVER = "the faults are over, or their pods end by themselves"


def begin(places: Collection[KeptPlace]) -> dict[str, Departure]:
    """Return {UID: pod that goes} for places."""
    return {place.uid: Departure(place=place) for place in places}


def line_up(departures: Mapping[str, Departure]) -> tuple[str, ...]:
    """Return the UIDs of the pods that are to be asked first, in that order."""
    return tuple(
        uid
        for uid, departure in departures.items()
        if departure.place.is_evicted and not departure.has_begun
    )


def ask(move: Move, now_s: float, room: int) -> After:
    """Ask the next pods of a move to go.

    Args:
        room: Number of pods that may be asked.
    """
    if not move.queue or room <= 0:
        return move, ()
    departures, effects = dict(move.departures), list[MoveEffect]()
    asked, turn = set[str](), 0
    while turn < len(move.queue) and len(asked) < room:
        uid = move.queue[turn]
        turn += 1
        departure = departures.get(uid)
        if departure is None or departure.has_begun:
            continue  # it has gone by itself
        first_ask_s = move.overdue_s or now_s
        departures[uid] = replace(departure, step=Step.ASKED, first_ask_s=first_ask_s)
        if uid in move.asking:
            continue  # its place was lost, and it has another one
        asked.add(uid)
        text = assessment.describe_eviction(departure.place, move.causes.get(uid, ""))
        effects.append(Tell(uid=uid, reason=EVICTED, text=text))
        effects.append(_end(move, departure, is_forced=move.switch is Switch.FORCE))
    moved = replace(
        move,
        departures=departures,
        queue=move.queue[turn:],
        asking=move.asking | asked,
        progress_s=now_s if asked else move.progress_s,
    )
    return moved, tuple(effects)


def ask_again(move: Move, now_s: float, limits: Limits, room: int) -> After:
    """Ask those pods again whose pause is over, and those late with grace 0."""
    effects, asked = list[MoveEffect](), set[str]()
    for uid, departure in move.departures.items():
        if len(asked) >= room:
            break
        is_due = departure.step in (Step.ASKED, Step.LEAVING) and (
            departure.again_s <= now_s
        )
        if is_due and uid not in move.asking:
            is_late = now_s >= departure.first_ask_s + limits.grace_s
            is_forced = is_late or move.switch is Switch.FORCE
            effects.append(_end(move, departure, is_forced=is_forced))
            asked.add(uid)
    if not asked:
        return move, ()
    return replace(move, asking=move.asking | asked), tuple(effects)


def _end(move: Move, departure: Departure, *, is_forced: bool) -> EndPod:
    place = departure.place
    return EndPod(
        job=move.job,
        uid=place.uid,
        name=place.name,
        namespace=place.namespace,
        is_forced=is_forced,
    )


def answer(move: Move, event: Answered, now_s: float, limits: Limits) -> After:
    """Take the answer to an eviction."""
    if event.uid not in move.asking:
        return move, ()
    move = replace(move, asking=move.asking - {event.uid})
    departure = move.departures.get(event.uid)
    if departure is None or departure.step is Step.GONE:
        return move, ()
    match event.outcome:
        case Outcome.GONE:
            return go(move, event.uid, now_s)
        case Outcome.YES:
            is_new = departure.step is not Step.LEAVING
            left = replace(
                departure,
                step=Step.LEAVING,
                is_homeless=False,
                again_s=_forced_s(move, departure, now_s, limits),
            )
            progress_s = now_s if is_new else move.progress_s
            return replace(_put(move, left), progress_s=progress_s), ()
        case _:
            return _refuse(move, departure, event, now_s, limits)


def _forced_s(move: Move, departure: Departure, now_s: float, limits: Limits) -> float:
    """Return when a pod that is leaving is asked again, with grace 0."""
    late_s = departure.first_ask_s + limits.grace_s
    if move.switch is Switch.FORCE or now_s >= late_s:
        return now_s + limits.longest_ask_s
    return late_s


def _refuse(
    move: Move, departure: Departure, event: Answered, now_s: float, limits: Limits
) -> After:
    """Let a pod whose eviction was refused, or has failed, be asked again."""
    late_s = departure.first_ask_s + limits.grace_s
    pause_s = max(2 * departure.pause_s, limits.first_pause_s)
    pause_s = min(pause_s, limits.longest_ask_s)
    again_s = now_s + pause_s
    waits = replace(
        departure,
        pause_s=pause_s,
        again_s=min(again_s, late_s) if now_s < late_s else again_s,
        news=event.text,
    )
    if event.text == departure.news:
        return _put(move, waits), ()
    text = f"its eviction is refused, and asked for again: {event.text}"
    return _put(move, waits), (Tell(uid=event.uid, reason=WAITS, text=text),)


def leave(move: Move, uid: str, now_s: float, limits: Limits) -> After:
    """Note that a pod is being deleted, by its controller or by people."""
    departure = move.departures.get(uid)
    if departure is None or departure.has_begun:
        return move, ()
    left = replace(
        departure,
        step=Step.LEAVING,
        first_ask_s=now_s,
        again_s=now_s + limits.grace_s,
    )
    return replace(_put(move, left), progress_s=now_s), ()


def go(move: Move, uid: str, now_s: float) -> After:
    """Note that a pod is gone; it is over with one that has no kept place."""
    departure = move.departures.get(uid)
    if departure is None or departure.step is Step.GONE:
        return move, ()
    if not departure.place.is_kept:
        return _without(move, {uid}, now_s), ()
    gone = _put(move, replace(departure, step=Step.GONE))
    return replace(gone, progress_s=now_s), ()


def end_places(move: Move, event: PlacesEnded, now_s: float) -> After:
    """Note that successors are bound, and that places are of no use any more.

    A place is over with both, and the pod of a lost one is planned as any other.
    """
    places = {place.uid: place for place in move.addition}
    places |= {uid: departure.place for uid, departure in move.departures.items()}
    ended, effects = set[str](), list[MoveEffect]()
    lost: defaultdict[str, list[KeptPlace]] = defaultdict(list)
    for end in event.ends:
        place = places.get(end.uid)
        if place is None or (isinstance(end, Bound) and not move.is_gone(end.uid)):
            continue
        ended.add(end.uid)
        if not isinstance(end, Bound):
            lost[end.why].append(place)
        elif end.node != place.node:
            text = (
                f"{assessment.describe_chips(place)} were kept for this pod, and it is "
                "bound elsewhere"
            )
            effects.append(Tell(uid=end.successor, reason=LOST, text=text))
    if not ended:
        return move, ()
    effects += (tell_lost(move, of_why, why) for why, of_why in lost.items())
    effects.append(ReleasePlaces(job=move.job, uids=frozenset(ended)))
    moved = _without(move, ended, now_s)
    for place in (place for of_why in lost.values() for place in of_why):
        moved = _put_homeless(moved, move.departures.get(place.uid), move)
    return _forget_unbegun(move, moved), tuple(effects)


def _put_homeless(after: Move, departure: Departure | None, before: Move) -> Move:
    """Return a move with a pod that still has to go, and has lost its place.

    Without another its job, which goes as a whole, would wait for it in vain.
    """
    may_stay = departure is not None and departure.step < Step.LEAVING
    if departure is None or not (may_stay and before.is_gathering):
        return after
    if not departure.place.is_evicted:
        return after  # its controller ends it
    place = replace(departure.place, node="", chips=0)
    return _put(after, Departure(place=place, is_homeless=True))


def withdraw(move: Move, uids: Collection[str], now_s: float) -> After:
    """Let pods stay that have not been asked; their places are released."""
    places = [place for place in move.unasked if place.uid in uids]
    if not places:
        return move, ()
    gone = frozenset(place.uid for place in places)
    moved = _forget_unbegun(move, _without(move, gone, now_s))
    kept_places = [place for place in places if place.is_kept]
    effects: tuple[MoveEffect, ...] = ()
    if kept_places:
        message = tell_lost(move, kept_places, _OVER)
        effects = (message, ReleasePlaces(job=move.job, uids=gone))
    return moved, effects


def tell_lost(move: Move, places: Collection[KeptPlace], why: str) -> TellJob:
    """Tell a job which places are kept no more; a pod that waits may want them."""
    first, more = next(iter(places)), len(places) - 1
    text = (
        f"{assessment.describe_chips(first)} are kept for the successor of "
        f"{first.name} no more: {why}"
    )
    text += f"; so {more} other places" if more else ""
    return TellJob(job=move.job, reason=LOST, text=text)


def evict_late(move: Move, uids: Collection[str], now_s: float) -> Move:
    """Have pods asked that their controller was to end."""
    departures = dict(move.departures)
    for uid in uids:
        departure = departures.get(uid)
        if departure is not None and not departure.has_begun:
            place = replace(departure.place, is_evicted=True)
            departures[uid] = replace(departure, place=place)
    return replace(
        move,
        departures=departures,
        queue=line_up(departures),
        stage=Stage.MOVING,
        progress_s=now_s,
    )


def find_late(move: Move, now_s: float, limits: Limits) -> frozenset[str]:
    """Return UIDs of pods that stay though all that are evicted have gone for long.

    Those that are being deleted are not among them, however long they take.
    """
    if now_s < max(move.progress_s, move.stage_s) + limits.controller_s:
        return frozenset()
    late = set[str]()
    for uid, departure in move.departures.items():
        if departure.place.is_evicted and departure.step is not Step.GONE:
            return frozenset()
        if not departure.has_begun:
            late.add(uid)
    return frozenset(late)


def is_stuck(move: Move, now_s: float, limits: Limits) -> bool:
    """Whether nothing of a move has happened for so long that it is given up."""
    leaving = (Step.ASKED, Step.LEAVING)
    is_leaving = any(d.step in leaving for d in move.departures.values())
    grace_s = limits.grace_s if is_leaving and move.switch is Switch.GRACE else 0.0
    return now_s >= move.progress_s + limits.keep_s + grace_s


def give_up(move: Move) -> After:
    """End a move that does not get on: pods stay, and places are given back."""
    staying = sum(d.step is not Step.GONE for d in move.departures.values())
    awaited = len(move.departures) - staying
    text = (
        f"the move after a fault is given up: {staying} pods have not gone, and "
        f"{awaited} that went have no successor on its kept place"
    )
    moved = replace(move, departures={}, queue=(), addition=())
    return moved, (
        TellJob(job=move.job, reason=LOST, text=text),  # also pods that wait for them
        ReleasePlaces(job=move.job),
    )


def _forget_unbegun(before: Move, after: Move) -> Move:
    """Return a move that ends without what it was for, if no pod was asked to go."""
    is_over = bool(before.departures) and not (after.departures or after.addition)
    if before.has_begun or not is_over:
        return after
    return replace(after, history=after.history[:-1])


def _put(move: Move, departure: Departure) -> Move:
    departures = dict(move.departures)
    departures[departure.place.uid] = departure  # keeps its turn
    return replace(move, departures=departures)


def _without(move: Move, uids: Collection[str], now_s: float) -> Move:
    """Return a move without pods, also without those that were to be added."""
    return replace(
        move,
        departures={u: d for u, d in move.departures.items() if u not in uids},
        queue=tuple(uid for uid in move.queue if uid not in uids),
        addition=tuple(place for place in move.addition if place.uid not in uids),
        progress_s=now_s,
    )
