"""Apply one event to what the extender knows, and return what is to be done.

Facts come from the API server, through its watches. Decisions are reservations, plans
of jobs and back-offs; the extender makes them, and a restart drops them. Free chips
follow from both. They are computed once at the end of a step, and only for nodes that
the step has touched.

Invariant: a free chip is neither reserved nor claimed by a living pod, and the agent
neither holds nor releases it. This is true in whatever order events arrive. A late
event never makes a bound pod unbound, or an ended pod living.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from extender.cache import announced, events
from extender.cache.events import Change, Ended
from extender.cache.facts import Facts
from extender.cache.node_state import ResourceState, offers_more
from extender.cache.rejections import OwnerBackoff
from extender.cache.reservations import (
    REVIEW_S,
    Conflict,
    NodeReservation,
    Owner,
    Reservation,
    Reservations,
)
from extender.cache.unconfirmed import UnconfirmedClaims
from extender.gang import events as gang_events
from extender.gang import permit
from extender.gang.gangs import Gangs
from extender.gang.membership import AbsentMember, Member, Membership
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.wire.pods import NpuPod


@dataclass(slots=True, kw_only=True)
class State:
    """What the extender knows and has decided; `Cache` keeps it and answers from it."""

    facts: Facts
    limits: gang_events.Limits
    self_maintain: bool
    #: jobs of several pods: their pods are facts, their plans decisions
    gangs: Gangs = field(default_factory=Gangs)
    #: decisions; a restart drops them, and each has an owner and an end
    reservations: Reservations = field(default_factory=Reservations)
    #: learnt from phases of pods; a restart forgets it
    backoff: OwnerBackoff = field(default_factory=OwnerBackoff)
    #: free chips; follows from facts and reservations
    index: Cluster = field(default_factory=Cluster)
    #: claims without a confirmed Allocate; follow from facts and reservations
    unconfirmed: UnconfirmedClaims = field(default_factory=UnconfirmedClaims)
    #: grows with every change that may change a plan
    version: int = 0
    #: kinds of objects whose watch is down, for sentences; "" if none is
    lost: str = ""
    #: seconds since the epoch, of the last `Ticked`
    ticked_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from one event: effects to carry out, in order; or a conflict."""

    effects: tuple[events.Effect, ...] = ()
    #: why chips were not reserved; nothing has changed then
    conflict: Conflict | None = None


@dataclass(slots=True)
class _Draft:
    """Effects of the step in progress, and what it has to compute again."""

    #: in the order in which they are carried out
    effects: list[events.Effect] = field(default_factory=list)
    #: (node, resource), in the order in which they were touched
    touched: dict[tuple[str, str], None] = field(default_factory=dict)
    #: nodes that offer more than before
    improved: set[str] = field(default_factory=set)

    def touch(self, resource_states: Iterable[ResourceState | None]) -> None:
        for resource_state in resource_states:
            if resource_state is not None:
                place = resource_state.node_info.name, resource_state.resource
                self.touched[place] = None

    def touch_places(self, ended: Iterable[Reservation]) -> None:
        for reservation in ended:
            self.touched[reservation.node, reservation.resource] = None


def step(state: State, change: Change, now_s: float) -> Outcome:
    """Apply one event.

    Args:
        state: Changed in place.
        now_s: When the extender learnt of it, in seconds since the epoch.

    Cost:
        O(pods and chips of the nodes that the event changes). For SelfMaintainSet:
        O(nodes and pods). For Ticked: O(nodes and jobs).
    """
    draft = _Draft()
    conflict = None
    if isinstance(change, events.Wanted):
        conflict = _reserve(state, change, now_s, draft)
    elif isinstance(change, events.NodeFact):
        _step_nodes(state, change, now_s, draft)
    elif isinstance(change, events.PodFact):
        _step_pods(state, change, now_s, draft)
    elif isinstance(change, events.Decision):
        _step_reservations(state, change, now_s, draft)
    elif isinstance(change, events.Ticked):
        _tick(state, change, now_s, draft)
    else:
        _step_gangs(state, change, now_s, draft)
    _compute(state, draft.touched, draft)
    if isinstance(change, events.NodeFact | events.Ticked):
        _judge_reports(state, draft)
    if draft.improved:
        draft.effects.append(events.NodesImproved(nodes=frozenset(draft.improved)))
    return Outcome(effects=tuple(draft.effects), conflict=conflict)


def _step_nodes(
    state: State, change: events.NodeFact, now_s: float, draft: _Draft
) -> None:
    match change:
        case events.NodeUpdated():
            if state.facts.is_node_changed(change):
                state.gangs.forget_refusals(change.name)
            draft.touch(state.facts.put_node(change, now_s))
            draft.effects += announced.judge_clock(state.facts, change.name)
            state.facts.forget_if_empty(change.name)
        case events.ReportUpdated():
            draft.touch(state.facts.put_report(change, now_s))
            draft.effects += announced.judge_clock(state.facts, change.node)
            state.facts.forget_if_empty(change.node)
        case events.SwitchesUpdated():
            state.facts.switch_texts = (change.tor_info, change.tor_level)
            state.version += 1
        case events.SelfMaintainSet():
            state.self_maintain = change.self_maintain
            draft.touch(state.facts.resource_states())
        case _:
            assert_never(change)


def _step_pods(
    state: State, change: events.PodFact, now_s: float, draft: _Draft
) -> None:
    """Apply an event about a pod or a job; wake schedulers if its job changes."""
    is_job_changed = False
    if state.gangs.refused_jobs and not isinstance(change, events.SizeRead):
        _forget_refusals(state, change)
    match change:
        case events.PodUpdated():
            is_job_changed = _update_pod(state, change, now_s, draft)
        case events.OtherPodUpdated():
            state.facts.requests.put(change.uid, change.node, change.ask)
            is_job_changed = state.gangs.put_other(
                change.uid,
                change.job,
                change.generation,
                change.created,
                ending=change.deleting,
            )
            _drop_outdated(state, change.job, now_s, draft)
        case events.PodDeleted():
            _end_all(state, change.uid, Ended.GONE, draft)
            _leave(state, change.uid, now_s, draft)
            draft.touch([state.facts.delete_pod(change.uid, now_s)])
        case events.SizeRead():
            is_job_changed = _set_size(state, change, now_s, draft)
        case _:
            assert_never(change)
    if is_job_changed:
        draft.effects.append(gang_events.WakeScheduler())


def _set_size(
    state: State, change: events.SizeRead, now_s: float, draft: _Draft
) -> bool:
    """Set the size of a job and of its stages; return whether one has changed."""
    gangs, size = state.gangs, change.size
    if size is None:
        return gangs.set_size(change.job, None, change.problem)
    job = gangs.stages.named_job(change.job)
    roles = gangs.stages.put(job, size)
    gang = gangs.jobs.get(job)
    for uid, member in list(gang.members.items()) if gang is not None else ():
        if member.membership.role in roles:
            _move_to_stage(state, uid, now_s, draft)
            gangs.stages.put(job, size)  # without pods, the job was forgotten
    sizes = {job: size} | {f"{job}/{stage.name}": stage.size for stage in size.stages}
    changed = [gangs.set_size(key, size, "") for key, size in sizes.items()]
    return any(changed)


def _move_to_stage(state: State, uid: str, now_s: float, draft: _Draft) -> None:
    """Move a member into the job that is the stage for its role."""
    gang = state.gangs.jobs[state.gangs.job_of[uid]]
    member = _restage(state, gang.members[uid])
    bound, succeeded = uid in gang.bound, uid in gang.succeeded
    ending, node = uid in gang.ending - gang.outdated, gang.nodes.get(uid, "")
    _leave(state, uid, now_s, draft)
    state.gangs.put(
        uid,
        member,
        bound=bound,
        succeeded=succeeded,
        ending=ending,
        now_s=now_s,
        node=node,
    )


def _restage(state: State, member: Member) -> Member:
    """Return a member of the job that is the stage for its role."""
    job = state.gangs.stages.job_of(member.membership)
    if job == member.membership.job:
        return member
    return replace(member, membership=replace(member.membership, job=job))


def _forget_refusals(state: State, change: events.PodShown) -> None:
    """Let plans use a node again if a pod comes there, leaves, or begins to end."""
    uid = change.pod.uid if isinstance(change, events.PodUpdated) else change.uid
    node_before, _ = state.facts.requests.at(uid) or ("", None)
    match change:
        case events.PodUpdated(pod=pod):
            node = "" if pod.terminal else pod.node
            known = state.facts.pods.get(uid)
            is_same = known is not None and known.deleting == pod.deleting
        case events.OtherPodUpdated(node=node):
            is_same = True
        case _:
            node, is_same = "", True
    if node != node_before or not is_same:
        for name in {node, node_before} - {""}:
            state.gangs.forget_refusals(name)


def _update_pod(
    state: State, change: events.PodUpdated, now_s: float, draft: _Draft
) -> bool:
    """Apply an event about a pod that asks for NPUs; return whether its job changed."""
    facts, pod = state.facts, change.pod
    if facts.is_stale(pod):
        return False
    if state.gangs.stages and change.member is not None:
        change = replace(change, member=_restage(state, change.member))
    before = facts.pods.get(pod.uid)
    if change.rejected and before is not None and not before.terminal:
        state.backoff.record_rejection(pod.owner, now_s)
    facts.put_pod(change)
    is_job_changed = _update_member(state, change, now_s, draft)
    if pod.node or pod.terminal:
        why = Ended.GONE if pod.terminal else Ended.CONFIRMED
        _end_all(state, pod.uid, why, draft)
    elif before is None and change.member is not None:
        _hand_over(state, pod, change.member.membership, now_s, draft)
    draft.touch([facts.place_pod(pod, now_s)])
    return is_job_changed


def _hand_over(
    state: State, pod: NpuPod, membership: Membership, now_s: float, draft: _Draft
) -> None:
    """Keep for a new pod what was kept for the member that it is.

    Nothing for a pod of another shape than was planned, or of an earlier generation.
    """
    member = AbsentMember(membership.job, *membership.place)
    if pod.uid in state.gangs.jobs[membership.job].outdated or any(
        reservation.claim is not None and reservation.claim.shape != pod.shape
        for reservation in state.reservations.kept_for(member)
    ):
        return
    draft.touch_places(state.reservations.hand_over(member, pod.uid))
    event = gang_events.FollowerArrived(uid=pod.uid, member=member)
    _step_gangs(state, event, now_s, draft)


def _update_member(
    state: State, change: events.PodUpdated, now_s: float, draft: _Draft
) -> bool:
    """Put a pod into its job, or out of it; return whether that changes the job.

    A pod that has failed leaves its job.
    """
    pod, member = change.pod, change.member
    place = change.other_membership if member is None else member.membership
    job = place.job if place is not None else ""
    if state.gangs.job_of.get(pod.uid, job) != job:
        _leave(state, pod.uid, now_s, draft)  # its labels changed
    if member is None:
        if place is None:
            return False
        if not pod.terminal:
            return state.gangs.put_other(pod.uid, job, place.generation, pod.created)
        _leave(state, pod.uid, now_s, draft)
        return False
    if pod.phase == "Failed":
        _leave(state, pod.uid, now_s, draft)
        return False
    is_bound = bool(pod.node) or pod.terminal
    is_changed = state.gangs.put(
        pod.uid,
        member,
        bound=is_bound,
        succeeded=pod.phase == "Succeeded",
        uncounted=change.is_uncounted,
        ending=pod.deleting,
        now_s=now_s,
        node=pod.node,
    )
    _drop_outdated(state, job, now_s, draft)
    if is_bound:
        _step_gangs(state, gang_events.Bound(uid=pod.uid), now_s, draft)
    elif pod.deleting:
        _step_gangs(state, gang_events.MemberRemoved(uid=pod.uid), now_s, draft)
    _review_job(state, pod.uid, draft)
    return is_changed


def _drop_outdated(state: State, job: str, now_s: float, draft: _Draft) -> None:
    """End the plans of pods that have become pods of an earlier generation."""
    for uid in state.gangs.outdated_in_plan(job):
        _step_gangs(state, gang_events.MemberRemoved(uid=uid), now_s, draft)


def _review_job(state: State, uid: str, draft: _Draft) -> None:
    """Have the size of a pod's job read, and end what was freed for the pod alone."""
    gang = state.gangs.gang_of(uid)
    if gang is None:
        return
    if gang.is_size_wanted:
        draft.effects.append(gang_events.ReadSize(job=gang.job))
    # chips that were freed for the pod alone are of no use to its job
    for freed in state.reservations.release(uid, Owner.PREEMPTION):
        _end(freed, Ended.EXPIRED, draft)


def _leave(state: State, uid: str, now_s: float, draft: _Draft) -> None:
    """Remove a pod from its job; nothing is kept for a job without pods."""
    job = state.gangs.job_of.get(uid, "")
    _step_gangs(state, gang_events.MemberRemoved(uid=uid), now_s, draft)
    if state.gangs.drop(uid):
        draft.effects.append(gang_events.WakeScheduler())
    if job and job not in state.gangs.jobs:
        _end_all(state, job, Ended.GONE, draft)


def _step_gangs(
    state: State, event: gang_events.Event, now_s: float, draft: _Draft
) -> None:
    for effect in permit.step(state.gangs, event, now_s, state.limits):
        if isinstance(effect, gang_events.Unreserve):
            for beneficiary in effect.kept_for:
                ended = state.reservations.release(beneficiary, Owner.PLAN)
                draft.touch_places(ended)
        draft.effects.append(effect)


def _judge_reports(state: State, draft: _Draft) -> None:
    """Have people and parts told of news in the reports of the touched nodes."""
    for place in draft.touched:
        draft.effects += announced.judge_report(state.facts, state.index, *place)


# -- reservations ------------------------------------------------------------------


def _step_reservations(
    state: State, change: events.Decision, now_s: float, draft: _Draft
) -> None:
    match change:
        case NodeReservation():
            state.reservations.reserve_nodes(change)
            state.version += 1
        case events.Released():
            ended = state.reservations.release(change.kept_for, change.owner)
            draft.touch_places(ended)
        case events.BindVoided():
            _void_bind(state, change, now_s, draft)
        case events.ReservationsSwapped():
            _swap(state, change, draft)
        case _:
            assert_never(change)


def _reserve(
    state: State, change: events.Wanted, now_s: float, draft: _Draft
) -> Conflict | None:
    """Reserve all chips that an event asks for, or none; return what is in the way."""
    wanted = (change,) if isinstance(change, Reservation) else change.reservations
    replaced = state.reservations.reserve_all(wanted)
    if isinstance(replaced, Conflict):
        return replaced
    draft.touch_places(replaced)
    for reservation in wanted:
        resource_state = state.facts.ensure_resource(
            reservation.node, reservation.resource
        )
        if reservation.claim is not None:
            resource_state.see_time(reservation.claim.predicate_time)
    draft.touch_places(wanted)
    if isinstance(change, events.JobReserved):
        places: dict[str, str] = {}
        followers: dict[AbsentMember, str] = {}
        for made in wanted:
            if isinstance(made.kept_for, str):
                places[made.kept_for] = made.node
            else:
                followers[made.kept_for] = made.node
        event = gang_events.JobPlanned(
            job=change.job, places=places, followers=followers, lists=change.lists
        )
        _step_gangs(state, event, now_s, draft)
    return None


def _void_bind(
    state: State, change: events.BindVoided, now_s: float, draft: _Draft
) -> None:
    uid = change.uid
    if change.is_gone:
        _end_all(state, uid, Ended.GONE, draft)
        _step_gangs(state, gang_events.MemberRemoved(uid=uid), now_s, draft)
        return
    gang, reservation = state.gangs.gang_of(uid), state.reservations.assigned(uid)
    if reservation is None:
        return
    if gang is not None and uid in gang.plan.places:
        state.reservations.change(reservation, Owner.PLAN, now_s + REVIEW_S)
    elif reservation.freed_until_s > now_s:
        until_s = reservation.freed_until_s
        state.reservations.change(reservation, reservation.freed_by, until_s)
    else:  # chips that are still being freed for the pod stay its own
        state.reservations.end(reservation)
    draft.touch_places([reservation])


def _swap(state: State, change: events.ReservationsSwapped, draft: _Draft) -> None:
    uid, other_uid = change.uid, change.other_uid
    gang, table = state.gangs.gang_of(uid), state.reservations
    own, other = table.assigned(uid), table.assigned(other_uid)
    if gang is None or other is None or other.owner is not Owner.PLAN:
        return
    if own is not None and own.owner is not Owner.PLAN:
        return
    draft.touch_places((*table.release(uid), *table.release(other_uid)))
    table.reserve(other._replace(kept_for=uid))
    gang.plan.places[uid] = other.node
    del gang.plan.places[other_uid]
    if own is not None:
        table.reserve(own._replace(kept_for=other_uid))
        gang.plan.places[other_uid] = own.node


def _end_all(state: State, beneficiary: str, why: Ended, draft: _Draft) -> None:
    """End all reservations of a pod that is bound, or of a pod or job that is gone.

    Those that wait for successors stay.
    """
    for reservation in state.reservations.kept_for(beneficiary):
        if not reservation.is_of_move:
            state.reservations.end(reservation)
            _end(reservation, why, draft)


def _end(reservation: Reservation, why: Ended, draft: _Draft) -> None:
    draft.touch_places([reservation])
    draft.effects.append(events.ReservationEnded(reservation=reservation, why=why))


def _expire(state: State, now_s: float, draft: _Draft) -> None:
    """Release or renew the reservations whose end has come."""
    renewed_s = now_s + REVIEW_S
    for reservation in state.reservations.due(now_s):
        if reservation.is_sent:
            state.reservations.change(reservation, reservation.owner, renewed_s)
            draft.effects.append(events.ReservationDue(reservation=reservation))
        elif _is_planned(state, reservation):
            state.reservations.change(reservation, reservation.owner, renewed_s)
        else:
            state.reservations.end(reservation)
            _end(reservation, Ended.EXPIRED, draft)


def _is_planned(state: State, reservation: Reservation) -> bool:
    """Whether the plan of a job still has a pod or member on the reserved node."""
    kept_for = reservation.kept_for
    if reservation.owner is not Owner.PLAN:
        return False
    if isinstance(kept_for, AbsentMember):
        gang = state.gangs.jobs.get(kept_for.job)
        node = gang.plan.followers.get(kept_for) if gang is not None else None
    else:
        gang = state.gangs.jobs.get(state.gangs.job_of.get(kept_for, ""))
        node = gang.plan.places.get(kept_for) if gang is not None else None
    return node == reservation.node


def _review_nodes(state: State, now_s: float, draft: _Draft) -> None:
    """End node reservations that expired or whose job no longer waits for nodes."""
    for node_reservation in list(state.reservations.of_nodes.values()):
        gang = state.gangs.jobs.get(node_reservation.job)
        waits = (
            gang is not None and gang.plan.waits_s is not None and gang.unbound_count
        )
        if waits and now_s < node_reservation.until_s:
            continue
        state.reservations.release_nodes(node_reservation.resource)
        state.version += 1
        if gang is not None:
            gang.plan.nodes_again_s = now_s + state.limits.reserve_for_s
        draft.effects.append(gang_events.WakeScheduler())


# -- time, and what follows from facts and reservations ------------------------------


def _tick(state: State, change: events.Ticked, now_s: float, draft: _Draft) -> None:
    is_seen_again = bool(state.lost) and not change.lost
    if is_seen_again or state.backoff.has_ended(state.ticked_s, now_s):
        # a back-off holds for all nodes; one improved node wakes the pods
        draft.improved.update(state.index.names[:1])
    state.lost = change.lost
    state.ticked_s = now_s
    _step_gangs(state, gang_events.Ticked(), now_s, draft)
    state.backoff.forget(now_s)
    _expire(state, now_s, draft)
    _review_nodes(state, now_s, draft)
    draft.touch(state.facts.expire(now_s))


def _compute(state: State, touched: Collection[tuple[str, str]], draft: _Draft) -> None:
    """Compute the free chips of resources of nodes, and update the index.

    A resource without product, pods and reservations is removed.

    Args:
        touched: Each (node, resource) once.
        draft: Gets the names of nodes that may take more pods than before, and the
            effects of kept chips that nothing occupies.
    """
    computed = []
    for name, resource in touched:
        state.version += 1
        resource_state = state.facts.resource_state(name, resource)
        if resource_state is None:
            continue
        node_state = _compute_resource(state, resource_state, draft)
        if node_state is not None:
            computed.append(node_state)
        else:
            state.index.drop(name, resource)
    if len(computed) == 1:  # most events change one node
        state.index.put(computed[0])
    else:
        state.index.put_all(computed)


def _compute_resource(
    state: State, resource_state: ResourceState, draft: _Draft
) -> NodeState | None:
    """Compute the free chips of one resource; None if the node has no such chips."""
    name, resource = resource_state.node_info.name, resource_state.resource
    reserved = state.reservations.on(name, resource)
    if resource_state.is_empty and not reserved:
        state.facts.drop_resource(resource_state)
    mask, shapes = 0, set()
    for reservation in reserved:
        mask |= reservation.chips
        if reservation.claim is not None:
            shapes.add(reservation.claim.shape)
        elif reservation.is_of_move and resource_state.are_released(
            reservation.chips, reserved=0
        ):
            draft.effects.append(events.PlaceCleared(kept_for=reservation.kept_for))
    has_gone_on = state.unconfirmed.put(
        name, resource, resource_state.unconfirmed(shapes)
    )
    before = state.index.nodes(resource).get(name)
    after = resource_state.state(reserved=mask, self_maintain=state.self_maintain)
    if has_gone_on or offers_more(before, after):
        draft.improved.add(name)
    return after
