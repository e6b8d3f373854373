"""Decide when the bind calls of a planned job go on: all of them, or none.

kube-scheduler sends one bind call for each pod. The calls wait until those of all pods
of the job have arrived; then all are released (carried out). If one does not arrive in
time, all are refused and all reservations of the job end. If calls did not wait, some
pods of a job could run while another is stuck, for lack of a volume or a quota.

Volcano sends no bind calls to the extender, and holds back the binds of a job itself.
It reports each allocation of a pod (`Allocated`), and each that it withdraws
(`Returned`).

The table gives the next phase and the effects for the main events:

    phase      event                                     next phase, effects
    ---------  ----------------------------------------  -------------------------------
    GATHERING  JobPlanned                                RESERVED: WakeScheduler
    GATHERING  BindArrived                               RefuseBind
    GATHERING  Ticked, after the pause for a failure,    WakeScheduler
               or once no more pods are awaited
    RESERVED   BindArrived, not the last                 the bind waits
    RESERVED   BindArrived, the last; or another pod of  BINDING: ReleaseBinds
               the job runs already
    RESERVED   BindArrived, the last, but the plan has   GATHERING: all binds refused,
               fewer pods than the job needs             all reservations end
    RESERVED   Bound, not being deleted, while other     BINDING: ReleaseBinds
               binds wait
    RESERVED   Ticked, after `permit_s`; who is missing    BINDING: ReleaseBinds
               waits for others to be bound (`late`)
    RESERVED   Allocated                                 BINDING
    RESERVED   Ticked, after `permit_s` or `plan_s`;       GATHERING: all binds refused,
               NodeNotOffered; MemberRemoved             all reservations end
    BINDING    BindArrived                               ReleaseBinds
    BINDING    BindArrived, but no bind is under way     RESERVED: the bind waits
               and no pod runs
    BINDING    BindFailed                                the pod's chips stay reserved;
                                                         RESERVED if all have failed
    BINDING    MemberRemoved; NodeNotOffered             this pod's reservation ends;
                                                         GATHERING if it is the last
    BINDING    Returned, the last; no pod is bound       GATHERING: all reservations end
    any        FollowerArrived                           the pod is planned where its
                                                         node was kept: WakeScheduler;
                                                         GATHERING turns into BINDING
    BINDING,   Ticked, `followers_s` after the gate      their reservations end,
    GATHERING  opened or a follower arrived              EmitEvent
    BINDING    Ticked, after `partial_s`                 EmitEvent for the unbound pods
    BINDING    Ticked, after `complete_s`                GATHERING: reservations end; if
                                                         `evicts_incomplete` and the job
                                                         lacks pods, bound ones are
                                                         evicted
    any        Bound, the last with a plan               GATHERING; EmitEvent once if an
                                                         elastic job lacks pods that it
                                                         can do without
    any        PlanBroken                                GATHERING: all binds refused,
                                                         all reservations end

The names in backticks in the table are fields of `gang.events.Limits`. MemberRemoved
and NodeNotOffered have no effect for a pod without a planned node. NodeNotOffered with
`of_one` is remembered until the gate's time is over.

A pod that is not offered its planned node, or does not come in time, teaches the next
plans (`learning`).

`step` changes the jobs and nothing else, and returns effects. `dispatch.Router` says
who carries them out.
"""

import zlib
from collections.abc import Iterator
from typing import assert_never

from extender.gang import learning
from extender.gang.events import (
    Allocated,
    BindAbandoned,
    BindArrived,
    BindFailed,
    Bound,
    Effect,
    EmitEvent,
    Event,
    EvictMembers,
    FollowerArrived,
    JobEvent,
    JobPlanned,
    Limits,
    MemberRemoved,
    NodeAccepted,
    NodeNotOffered,
    OfferEvent,
    PlanBroken,
    PlanFailed,
    PodEvent,
    RefuseBind,
    ReleaseBinds,
    Returned,
    SeenInVolcano,
    Ticked,
    Unreserve,
    VolcanoEvent,
    WakeScheduler,
)
from extender.gang.gang import Gang
from extender.gang.gangs import Gangs
from extender.gang.job_plan import Phase
from extender.gang.late import waits_for_bound

Effects = Iterator[Effect]

#: Refusal of a bind without a reservation.
NO_PLAN = "the job of this pod has no plan now: it is tried again as a whole"
#: Why a plan ends that has fewer pods than its job needs.
_GONE = "pods beside which it was to run have gone"
_GROWN = "the job has more pods than when it was planned: it is planned again"


def step(
    gangs: Gangs, event: Event, now_s: float, limits: Limits
) -> tuple[Effect, ...]:
    """Apply one event to the jobs, and return the effects to carry out, in order.

    Args:
        gangs: Changed in place.
        now_s: Seconds since the epoch.
    """
    if isinstance(event, Ticked):
        effects = tuple(
            effect
            for gang in list(gangs.jobs.values())
            for effect in _ticked(gang, now_s, limits)
        )
        gangs.note_refusals()
        return effects
    if isinstance(event, JobEvent):
        gang = gangs.jobs.get(event.job)
        return tuple(_of_job(gang, event, now_s, limits)) if gang else ()
    gang = gangs.gang_of(event.uid)
    if isinstance(event, BindArrived):
        return tuple(_came(gang, event, now_s, limits))
    if gang is None:
        return ()
    effects = tuple(_of_member(gang, event, now_s, limits))
    if gang.plan.refused:
        gangs.refused_jobs.add(gang.job)
    return effects


def _of_job(gang: Gang, event: JobEvent, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    match event:
        case JobPlanned(places=places, followers=followers, lists=lists):
            plan.phase = Phase.RESERVED
            plan.places = dict(places)
            plan.followers |= followers
            plan.followers_until_s = now_s + limits.followers_s
            plan.until_s = now_s + limits.plan_s
            plan.waits_s, plan.text = None, ""
            plan.planned_s, plan.lists = now_s, dict(lists)
            plan.accepted.clear()
            plan.misses.clear()
            plan.is_part_reported = plan.is_part_reported and gang.is_running
            yield WakeScheduler()
        case PlanFailed(text=text):
            plan.text = text
            if plan.waits_s is None:
                plan.waits_s = now_s
        case PlanBroken(text=text):
            yield from _void(gang, text)
            _back_off(gang, now_s, limits)
        case SeenInVolcano():
            plan.is_gated = False
        case _:
            assert_never(event)


def _came(
    gang: Gang | None, event: BindArrived, now_s: float, limits: Limits
) -> Effects:
    place = gang.plan.places.get(event.uid) if gang else None
    if gang is None or place is None:
        yield RefuseBind(call=event.call, text=NO_PLAN)
        return
    if place != event.node:
        text = f"the plan of this pod's job has it on {place}"
        yield RefuseBind(call=event.call, text=text)
        return
    plan = gang.plan
    _close_gate(gang, now_s, limits)  # the only pod that was bound may have gone
    before = plan.waiting_calls.pop(event.uid, None)
    if before is not None:
        yield RefuseBind(
            call=before, text="a later call has taken the place of this one"
        )
    if gang.may_bind(event.uid):
        if plan.phase is not Phase.BINDING:
            _open(gang, now_s)
        plan.open_binds.add(event.uid)
        yield ReleaseBinds(job=gang.job, calls={event.uid: event.call})
        return
    if not plan.waiting_calls:
        plan.until_s = now_s + limits.permit_s
    plan.waiting_calls[event.uid] = event.call
    if plan.waiting_calls.keys() == plan.places.keys():
        yield from _release_all(gang, now_s)


def _release_all(gang: Gang, now_s: float) -> Effects:
    """Release all binds of a plan, or void the plan if the job needs more pods."""
    plan = gang.plan
    if gang.is_plan_short:
        has_more = gang.unbound_count > len(plan.places)
        yield from _void(gang, _GROWN if has_more else _GONE)
        return
    calls, plan.waiting_calls = plan.waiting_calls, {}
    _open(gang, now_s)
    plan.open_binds = set(calls)
    yield ReleaseBinds(job=gang.job, calls=calls)


def _of_member(
    gang: Gang,
    event: VolcanoEvent | OfferEvent | FollowerArrived | PodEvent,
    now_s: float,
    limits: Limits,
) -> Effects:
    match event:
        case Allocated() | Returned():
            yield from _of_volcano(gang, event, now_s, limits)
        case NodeNotOffered():
            yield from _missed(gang, event, now_s, limits)
        case FollowerArrived():
            yield from _place_follower(gang, event, now_s, limits)
        case NodeAccepted(uid=uid):
            learning.record_acceptance(gang, uid)
        case _:
            yield from _of_pod(gang, event, now_s, limits)


def _of_pod(gang: Gang, event: PodEvent, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    match event:
        case BindAbandoned(uid=uid, call=call):
            if plan.waiting_calls.get(uid) == call:
                del plan.waiting_calls[uid]
        case Bound(uid=uid):
            _bind_member(gang, uid)
            yield from _give_back(gang)
            yield from _tell_part(gang)
            yield from _go_on(gang, now_s)
        case BindFailed(uid=uid):
            plan.open_binds.discard(uid)
            _close_gate(gang, now_s, limits)
            yield WakeScheduler()
        case MemberRemoved(uid=uid):
            yield from _lost(gang, uid)
        case _:
            assert_never(event)


def _of_volcano(
    gang: Gang, event: VolcanoEvent, now_s: float, limits: Limits
) -> Effects:
    plan = gang.plan
    match event:
        case Allocated(uid=uid):
            if plan.phase is not Phase.BINDING:
                _open(gang, now_s)
            plan.open_binds.add(uid)
        case Returned(uid=uid):
            plan.open_binds.discard(uid)
            if _has_none_bound(gang):
                # Volcano's other plugins have reasons that we do not know: pause.
                yield from _void(gang, "Volcano did not find places for all its pods")
                _back_off(gang, now_s, limits)
        case _:
            assert_never(event)


def _has_none_bound(gang: Gang) -> bool:
    """Whether a job whose binds were released has none under way, and none bound."""
    plan = gang.plan
    is_open = plan.phase is Phase.BINDING
    return is_open and not plan.open_binds and not gang.is_running


def _close_gate(gang: Gang, now_s: float, limits: Limits) -> None:
    """Let all binds of a job arrive again if none is under way, and none bound."""
    if _has_none_bound(gang):
        gang.plan.phase = Phase.RESERVED
        gang.plan.until_s = now_s + limits.plan_s


def _bind_member(gang: Gang, uid: str) -> None:
    plan = gang.plan
    gang.changes += uid not in gang.bound
    gang.bound.add(uid)
    plan.open_binds.discard(uid)
    plan.places.pop(uid, None)
    if not plan.places:
        gang.record_run()
        if plan.phase is not Phase.GATHERING:
            _close(gang)


def _tell_part(gang: Gang) -> Effects:
    """Emit one event if an elastic job runs with fewer pods than it has."""
    plan, size = gang.plan, gang.size
    if plan.is_part_reported or plan.places or size is None or not size.is_elastic:
        return
    unbound = gang.unbound
    if not unbound or gang.lacks_members:
        return
    plan.is_part_reported = True
    text = (
        f"the job runs with {gang.part_text}, and needs {size.least_text}: "
        f"the others join as room comes"
    )
    yield EmitEvent(
        uids=(unbound[0],), reason="AscendGangSmaller", text=text, is_warning=False
    )


def _go_on(gang: Gang, now_s: float) -> Effects:
    """Release all waiting bind calls of a job if one of its pods runs."""
    plan = gang.plan
    if not plan.waiting_calls or not gang.is_running:
        return
    calls, plan.waiting_calls = plan.waiting_calls, {}
    if plan.places:
        _open(gang, now_s)
        plan.open_binds |= calls.keys() & plan.places.keys()
    yield ReleaseBinds(job=gang.job, calls=calls)


def _lost(gang: Gang, uid: str) -> Effects:
    plan = gang.plan
    yield from _give_back(gang, uid)
    if plan.phase is Phase.RESERVED and uid in plan.places:
        yield from _void(gang, f"pod {gang.format_names([uid])} of the job has gone")
    elif plan.places.pop(uid, None) is not None:
        yield Unreserve(kept_for=(uid,))
        if not plan.places:
            _close(gang)


def _missed(gang: Gang, event: NodeNotOffered, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    uid = event.uid
    if uid not in plan.places:
        return
    learning.record_miss(gang, event)
    if event.of_one:
        return
    node = plan.places[uid]
    learning.learn(gang, uid, now_s, limits)
    if plan.phase is Phase.BINDING:
        del plan.places[uid]
        yield Unreserve(kept_for=(uid,))
        if not plan.places:
            _close(gang)
        return
    name = gang.format_names([uid])
    text = f"pod {name} of the job cannot go to {node}: it is planned again"
    yield from _void(gang, text)
    if plan.failures < _UNPAUSED_PLANS:
        plan.failures += 1
    else:
        _back_off(gang, now_s, limits)
    learning.count_vain(gang, now_s, limits)


#: Times in a row that a job is planned again without a pause after NodeNotOffered.
_UNPAUSED_PLANS = 3


def _ticked(gang: Gang, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    plan.refused = {place: end for place, end in plan.refused.items() if now_s < end}
    plan.near_own = {kind: end for kind, end in plan.near_own.items() if now_s < end}
    yield from _follow(gang, now_s, limits)
    if gang.settled_s and now_s >= gang.settled_s:
        gang.settled_s = 0.0
        if gang.size is not None and gang.size.is_elastic:
            yield WakeScheduler()
    if plan.phase is Phase.RESERVED and now_s >= plan.until_s:
        yield from _too_late(gang, now_s, limits)
    elif plan.phase is Phase.BINDING:
        yield from _in_part(gang, now_s, limits)
    elif plan.again_s and now_s >= plan.again_s:
        plan.again_s = 0.0
        yield WakeScheduler()


def _too_late(gang: Gang, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    absent = [uid for uid in plan.places if uid not in plan.waiting_calls]
    arrived, total = len(plan.waiting_calls), len(plan.places)
    if arrived and waits_for_bound(gang, absent):
        yield from _release_all(gang, now_s)
        return
    learning.learn_late(gang, absent, now_s, limits)
    if arrived:
        names = gang.format_names(absent)
        text = (
            f"{arrived} of {total} pods of the job were ready to be bound within "
            f"{limits.permit_s:g} s, without {names}: all are tried again"
        )
        yield EmitEvent(uids=tuple(absent), reason="AscendGangTimeout", text=text)
    else:
        text = f"no pod of the job was to be bound within {limits.plan_s:g} s"
    yield from _void(gang, text)
    _back_off(gang, now_s, limits)
    learning.count_vain(gang, now_s, limits)


def _in_part(gang: Gang, now_s: float, limits: Limits) -> Effects:
    plan = gang.plan
    late_s = now_s - plan.open_s
    bound = gang.bound - gang.ending - gang.succeeded
    unbound = tuple(plan.places)
    if late_s >= limits.partial_s and not plan.is_reported:
        plan.is_reported = True
        text = (
            f"{len(bound)} pods of the job are bound and {len(unbound)} are not: "
            f"{gang.format_names(unbound)}"
        )
        yield EmitEvent(uids=unbound, reason="AscendGangIncomplete", text=text)
    if late_s >= limits.complete_s:
        if limits.evicts_incomplete and bound and gang.lacks_successors:
            text = "evicted, because its job was not complete in time: it starts again"
            uids = tuple(sorted(bound))
            yield EmitEvent(uids=uids, reason="AscendGangEvicted", text=text)
            yield EvictMembers(uids=uids)
        yield from _void(gang, "the job was not complete in time")
        _back_off(gang, now_s, limits)


def _open(gang: Gang, now_s: float) -> None:
    plan = gang.plan
    plan.phase = Phase.BINDING
    plan.open_s = now_s
    plan.is_reported = False


def _place_follower(
    gang: Gang, event: FollowerArrived, now_s: float, limits: Limits
) -> Effects:
    """Plan a new pod on the node that was kept for the member that it is.

    If no other pod of the job is bound and stays, the job begins again as a whole.
    """
    plan = gang.plan
    node = plan.followers.pop(event.member, None)
    if node is None:
        return
    if plan.phase is Phase.GATHERING and not gang.has_bound:
        yield Unreserve(kept_for=(event.uid,))
        return
    plan.places[event.uid] = node
    plan.followers_until_s = now_s + limits.followers_s
    if plan.phase is Phase.GATHERING:
        _open(gang, now_s)
    yield WakeScheduler()


def _follow(gang: Gang, now_s: float, limits: Limits) -> Effects:
    """Give the nodes of members without a pod back once their time is over."""
    plan = gang.plan
    if plan.phase is Phase.RESERVED:
        plan.followers_until_s = now_s + limits.followers_s
    elif plan.followers and now_s >= plan.followers_until_s:
        text = (
            f"{len(plan.followers)} pods of the job were not made within "
            f"{limits.followers_s:g} s after the others: their nodes are given back"
        )
        yield from _return_followers(gang, text)


def _give_back(gang: Gang, uid: str = "") -> Effects:
    """Return nodes kept for followers if no member stays but perhaps this one."""
    if gang.plan.followers and not gang.members.keys() - gang.ending - {uid}:
        yield from _return_followers(gang, "")


def _return_followers(gang: Gang, text: str) -> Effects:
    """End the reservations of members without a pod, and say so on the others."""
    followers, gang.plan.followers = gang.plan.followers, {}
    if followers:
        yield Unreserve(kept_for=tuple(followers))
        bound = sorted(gang.placed, key=gang.rank_key)
        if text and bound:
            yield EmitEvent(uids=(bound[0],), reason="AscendFollowersLate", text=text)


def _close(gang: Gang) -> None:
    """End the plan of a job in which no planned pod is left to be bound."""
    plan = gang.plan
    plan.phase = Phase.GATHERING
    plan.failures = 0
    plan.again_s = 0.0


def _void(gang: Gang, text: str) -> Effects:
    """Drop the plan of a job: refuse its waiting binds, and end its reservations.

    A reservation whose bind has begun stays: nobody but the binder ends it.
    """
    plan = gang.plan
    plan.phase = Phase.GATHERING
    plan.text = text
    waiting_calls, plan.waiting_calls = plan.waiting_calls, {}
    places, plan.places = plan.places, {}
    followers, plan.followers = plan.followers, {}
    plan.open_binds.clear()
    for call in waiting_calls.values():
        yield RefuseBind(call=call, text=text)
    if places or followers:
        yield Unreserve(kept_for=(*places, *followers))


def _back_off(gang: Gang, now_s: float, limits: Limits) -> None:
    """Set the earliest time at which a job is planned again.

    The pause doubles with each failure, up to a limit. A part that depends on the name
    of the job is then added, at most as long as the pause. So two jobs that compete for
    chips are not planned at the same time.
    """
    plan = gang.plan
    plan.failures += 1
    doublings = min(plan.failures - 1, 16)
    pause_s = min(limits.first_wait_s * 2**doublings, limits.longest_wait_s)
    share = zlib.crc32(f"{gang.job}/{plan.failures}".encode()) / 2**32
    plan.again_s = now_s + pause_s * (1 + share)
