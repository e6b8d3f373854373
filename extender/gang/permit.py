"""When are the pods of a planned job bound: all of them, or none?

kube-scheduler sends a bind for each pod. The answers are held until all pods of the
job have come that far; then all are bound. If one does not come in time, all are
refused and everything is given back: so no pod of a job runs while another is stuck on
CPU, a volume or a quota, of which we know nothing.

    phase    what happens                              what follows
    -------  ----------------------------------------  ---------------------------------
    waiting  Planned                                   planned; nobody has come
    planned  Came, not the last                        its answer waits
    planned  Came, the last; or one runs already       being bound: Open
    planned  Seated, by a bind that was unclear        being bound: Open, who has come
    planned  Ticked, too late; Missed; Lost; Broken    waiting: all refused, given back
    being …  Failed                                    its chips stay for the next try;
                                                       planned again if all have failed
    planned  Allocated, the first                      being bound: Volcano's own gate
    being …  Returned, the last                        waiting: the rest is given back
    being …  Seated, the last                          waiting, with nothing to wait for
    being …  Ticked, later than people should wait     people are told
    being …  Ticked, far too late                      waiting: the rest is given back;
                                                       the bound are evicted, if asked

Pure: `step` changes the book of jobs and returns what is to be done; who does it is
`planner`. Calls are known by number; a call whose caller has gone is void.
"""

import zlib
from collections.abc import Iterator
from typing import assert_never

from extender.gang.events import (
    Allocated,
    Answer,
    Broken,
    Came,
    Effect,
    Event,
    Failed,
    GiveBack,
    Left,
    Limits,
    Lost,
    Missed,
    Open,
    Planned,
    Remove,
    Returned,
    Seated,
    Tell,
    Ticked,
    Unplanned,
    Wake,
)
from extender.gang.gangs import Gang, Gangs, Phase

Effects = Iterator[Effect]

#: Said of a bind for which nothing is kept (any more).
NO_PLAN = "the job of this pod has no plan now: it is tried again as a whole"


def step(
    gangs: Gangs, event: Event, now_s: float, limits: Limits
) -> tuple[Effect, ...]:
    """Let one thing happen.

    Args:
        gangs: Changed in place.
        event: What happened.
        now_s: Seconds since the epoch.
        limits: How long things may take.

    Returns:
        What is to be done, in order.
    """
    match event:
        case Planned(job=job) | Unplanned(job=job) | Broken(job=job):
            gang = gangs.jobs.get(job)
            return tuple(_of_job(gang, event, now_s, limits)) if gang else ()
        case Ticked():
            found: list[Effect] = []
            for gang in list(gangs.jobs.values()):
                found += _ticked(gang, now_s, limits)
            return tuple(found)
        case Came():
            return tuple(_came(gangs.of(event.uid), event, now_s, limits))
        case Allocated() | Returned():
            gang = gangs.of(event.uid)
            return tuple(_of_volcano(gang, event, now_s, limits)) if gang else ()
        case Left() | Seated() | Failed() | Lost() | Missed():
            gang = gangs.of(event.uid)
            return tuple(_of_pod(gang, event, now_s, limits)) if gang else ()
        case _:
            assert_never(event)


def _of_job(
    gang: Gang, event: Planned | Unplanned | Broken, now_s: float, limits: Limits
) -> Effects:
    match event:
        case Planned(places=places):
            gang.phase = Phase.HELD
            gang.places = dict(places)
            gang.until_s = now_s + limits.plan_s
            gang.waits_s, gang.said = None, ""
            gang.missed.clear()
            yield Wake()
        case Unplanned(said=said):
            gang.said = said
            if gang.waits_s is None:
                gang.waits_s = now_s
        case Broken(said=said):
            yield from _void(gang, said)
            _back_off(gang, now_s, limits)
        case _:
            assert_never(event)


def _came(gang: Gang | None, event: Came, now_s: float, limits: Limits) -> Effects:
    place = gang.places.get(event.uid) if gang else None
    if gang is None or place is None:
        yield Answer(call=event.call, said=NO_PLAN)
        return
    if place != event.node:
        said = f"the plan of this pod's job has it on {place}"
        yield Answer(call=event.call, said=said)
        return
    before = gang.came.pop(event.uid, None)
    if before is not None:
        yield Answer(call=before, said="a later call has taken the place of this one")
    if gang.lets_through(event.uid):
        if gang.phase is not Phase.OPEN:
            _open(gang, now_s)
        gang.going.add(event.uid)
        yield Open(job=gang.job, calls={event.uid: event.call})
        return
    if not gang.came:
        gang.until_s = now_s + limits.gate_s
    gang.came[event.uid] = event.call
    if gang.came.keys() == gang.places.keys():
        calls, gang.came = gang.came, {}
        _open(gang, now_s)
        gang.going = set(calls)
        yield Open(job=gang.job, calls=calls)


def _of_pod(
    gang: Gang,
    event: Left | Seated | Failed | Lost | Missed,
    now_s: float,
    limits: Limits,
) -> Effects:
    match event:
        case Left(uid=uid, call=call):
            if gang.came.get(uid) == call:
                del gang.came[uid]
        case Seated(uid=uid):
            _seat(gang, uid)
            yield from _go_on(gang, now_s)
        case Failed(uid=uid):
            gang.going.discard(uid)
            if gang.phase is Phase.OPEN and not gang.going and not gang.seated:
                gang.phase = Phase.HELD  # nobody got through: all are to come again
                gang.until_s = now_s + limits.plan_s
            yield Wake()
        case Lost(uid=uid):
            yield from _lost(gang, uid)
        case Missed():
            yield from _missed(gang, event, now_s, limits)
        case _:
            assert_never(event)


def _of_volcano(
    gang: Gang, event: Allocated | Returned, now_s: float, limits: Limits
) -> Effects:
    match event:
        case Allocated(uid=uid):
            if gang.phase is not Phase.OPEN:
                _open(gang, now_s)
            gang.going.add(uid)
        case Returned(uid=uid):
            gang.going.discard(uid)
            if gang.phase is Phase.OPEN and not gang.going and not gang.seated:
                # Of what its other plugins ask we know nothing: not at once again.
                yield from _void(gang, "Volcano did not find places for all its pods")
                _back_off(gang, now_s, limits)
        case _:
            assert_never(event)


def _seat(gang: Gang, uid: str) -> None:
    gang.seated.add(uid)
    gang.going.discard(uid)
    gang.places.pop(uid, None)
    if gang.phase is not Phase.IDLE and not gang.places:
        _close(gang)


def _go_on(gang: Gang, now_s: float) -> Effects:
    """Let through who has come: one runs, so there are no others to wait for."""
    if not gang.came:
        return
    calls, gang.came = gang.came, {}
    if gang.places:
        _open(gang, now_s)
        gang.going |= calls.keys() & gang.places.keys()
    yield Open(job=gang.job, calls=calls)


def _lost(gang: Gang, uid: str) -> Effects:
    if gang.phase is Phase.HELD and uid in gang.places:
        yield from _void(gang, f"pod {gang.named([uid])} of the job has gone")
    elif gang.places.pop(uid, None) is not None:
        yield GiveBack(uids=(uid,))
        if not gang.places:
            _close(gang)


def _missed(gang: Gang, event: Missed, now_s: float, limits: Limits) -> Effects:
    uid = event.uid
    if uid not in gang.places:
        return
    if event.of_one and uid not in gang.missed:
        gang.missed.add(uid)
        return
    node = gang.places[uid]
    gang.avoid[node] = now_s + limits.avoid_s
    if gang.phase is Phase.OPEN:
        del gang.places[uid]
        yield GiveBack(uids=(uid,))
        if not gang.places:
            _close(gang)
        return
    text = f"pod {gang.named([uid])} of the job cannot go to {node}: it is planned anew"
    yield from _void(gang, text)
    gang.failures += 1
    if gang.failures > _AT_ONCE:
        _back_off(gang, now_s, limits, counted=True)


#: So often a job is planned anew at once when a pod is not offered its node.
_AT_ONCE = 3


def _ticked(gang: Gang, now_s: float, limits: Limits) -> Effects:
    gang.avoid = {node: end for node, end in gang.avoid.items() if now_s < end}
    if gang.phase is Phase.HELD and now_s >= gang.until_s:
        yield from _too_late(gang, now_s, limits)
    elif gang.phase is Phase.OPEN:
        yield from _in_part(gang, now_s, limits)
    elif gang.again_s and now_s >= gang.again_s:
        gang.again_s = 0.0
        yield Wake()


def _too_late(gang: Gang, now_s: float, limits: Limits) -> Effects:
    absent = [uid for uid in gang.places if uid not in gang.came]
    came, total = len(gang.came), len(gang.places)
    if came:
        for uid in absent:
            gang.avoid[gang.places[uid]] = now_s + limits.avoid_s
        said = (
            f"{came} of {total} pods of the job were ready to be bound within "
            f"{limits.gate_s:g} s, without {gang.named(absent)}: all are tried again"
        )
        yield Tell(uids=tuple(absent), reason="AscendGangTimeout", said=said)
    else:
        said = f"no pod of the job was to be bound within {limits.plan_s:g} s"
    yield from _void(gang, said)
    _back_off(gang, now_s, limits)


def _in_part(gang: Gang, now_s: float, limits: Limits) -> Effects:
    late_s = now_s - gang.open_s
    bound = gang.seated - gang.ending
    rest = tuple(gang.places)
    if late_s >= limits.partial_s and not gang.is_told:
        gang.is_told = True
        said = (
            f"{len(bound)} pods of the job are bound and {len(rest)} are not: "
            f"{gang.named(rest)}"
        )
        yield Tell(uids=rest, reason="AscendGangIncomplete", said=said)
    if late_s >= limits.complete_s:
        if limits.evicts_incomplete and bound:
            said = "evicted, because its job was not complete in time: it begins anew"
            uids = tuple(sorted(bound))
            yield Tell(uids=uids, reason="AscendGangEvicted", said=said)
            yield Remove(uids=uids)
        yield from _void(gang, "the job was not complete in time")
        _back_off(gang, now_s, limits)


def _open(gang: Gang, now_s: float) -> None:
    gang.phase = Phase.OPEN
    gang.open_s = now_s
    gang.is_told = False


def _close(gang: Gang) -> None:
    """All have their nodes: nothing is left to wait for."""
    gang.phase = Phase.IDLE
    gang.failures = 0
    gang.again_s = 0.0


def _void(gang: Gang, said: str) -> Effects:
    """Refuse who has come, and give everything back."""
    gang.phase = Phase.IDLE
    gang.said = said
    came, gang.came = gang.came, {}
    places, gang.places = gang.places, {}
    gang.going.clear()
    gang.missed.clear()
    for call in came.values():
        yield Answer(call=call, said=said)
    if places:
        yield GiveBack(uids=tuple(places))


def _back_off(
    gang: Gang, now_s: float, limits: Limits, *, counted: bool = False
) -> None:
    """Pause, each time about twice as long; jobs that collided part ways.

    What is added to each pause follows from the job's name and the number of failures,
    so that two jobs that lost to each other do not meet again in step.
    """
    gang.failures += not counted
    doublings = min(gang.failures - 1, 16)
    pause_s = min(limits.first_wait_s * 2**doublings, limits.longest_wait_s)
    share = zlib.crc32(f"{gang.job}/{gang.failures}".encode()) / 2**32
    gang.again_s = now_s + pause_s * (1 + share)
