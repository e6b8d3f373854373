"""Learn from pods that did not get their planned node, for the next plans of the job.

kube-scheduler gives no reason: a node is in the list of a pod or it is not. It counts a
pod on its node as soon as filter has let the pod go there (`NodeAccepted`). So what is
missing, of the nodes that it offered before any member had come, shows what is in the
way: a member of the job, or the node itself.

Nothing is learnt under Volcano, whose session finds places for siblings.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from extender.gang.events import Limits, NodeNotOffered
from extender.gang.gang import Gang
from extender.gang.job_plan import Miss
from extender.gang.membership import Member
from scheduler_core.placement.siblings import NOTHING_LEARNT, Cap, Learnt, Level

_HOUR_S = 3600.0


def record_acceptance(gang: Gang, uid: str) -> None:
    """Record that filter has let a member go to its planned node."""
    gang.plan.accepted.add(uid)
    gang.plan.misses.pop(uid, None)


def record_miss(gang: Gang, event: NodeNotOffered) -> None:
    """Record which nodes a member was offered instead, and who had come before.

    Of equal lists the first is kept: the fewer have come, the more it says.
    """
    plan, uid = gang.plan, event.uid
    known = plan.misses.get(uid)
    if known is None or known.offered != event.offered:
        come = (plan.accepted | plan.waiting_calls.keys()) - {uid}
        plan.misses[uid] = Miss(
            offered=event.offered,
            withheld=_offered_before(gang, uid) - event.offered,
            come=_places(gang, come),
        )


def learn(gang: Gang, uid: str, now_s: float, limits: Limits) -> None:
    """Learn why a member did not get its planned node, after a miss or in vain.

    If members of its kind had come, no more of the kind fit onto their nodes and the
    missing ones together: one on a node, or in a zone. Else members on the planned node
    are in the way, or the missing nodes themselves are.
    """
    plan = gang.plan
    if not plan.is_gated:
        return
    node, miss = plan.places[uid], plan.misses.get(uid)
    if uid in plan.accepted or miss is None:  # something keeps it after the filter
        plan.refused[gang.kind_of(uid), node] = now_s + limits.avoid_s
    else:
        _learn_missing(gang, uid, miss, now_s, limits)


def learn_late(
    gang: Gang, absent: Collection[str], now_s: float, limits: Limits
) -> None:
    """Learn why members did not come within the gate.

    A member that the scheduler did not ask about was offered no node at all. One of a
    kind says it for all.
    """
    plan = gang.plan
    come = _places(gang, plan.waiting_calls)
    unasked: set[str] = set()
    for uid in absent:
        if uid in plan.accepted or uid in plan.misses:
            learn(gang, uid, now_s, limits)
        elif plan.is_gated and gang.kind_of(uid) not in unasked:
            kind = gang.kind_of(uid)
            unasked.add(kind)
            others = {place for other, place in come if other != kind}
            withheld = _offered_before(gang, uid) - others
            miss = Miss(offered=frozenset(), withheld=withheld, come=come)
            is_of_kind = any(other == kind for other, _ in come)
            if not is_of_kind:
                miss = replace(miss, withheld=frozenset())
            _learn_missing(gang, uid, miss, now_s, limits)
            node = plan.places[uid]
            if all(place != node for _, place in come):  # or it is the node after all
                plan.refused[kind, node] = now_s + limits.avoid_s


def _learn_missing(
    gang: Gang, uid: str, miss: Miss, now_s: float, limits: Limits
) -> None:
    plan = gang.plan
    kind, node = gang.kind_of(uid), plan.places[uid]
    if _is_beside_others(gang, uid, miss):
        plan.near_own[kind] = now_s + _HOUR_S
        return
    missing = miss.withheld | {node}
    alike = frozenset(place for other, place in miss.come if other == kind)
    kinds = {
        other
        for other, place in miss.come
        if place == node and not _awaits(gang, uid, other)
    }
    if alike and missing - alike:
        nodes = missing | alike
        members = [*miss.come, *_places(gang, gang.nodes)]
        most = sum(other == kind and place in nodes for other, place in members)
        plan.caps[Cap(kind, nodes, most)] = None
    elif kinds:
        plan.apart.update((kind, other) for other in kinds & {kind} or kinds)
    else:
        for name in missing:
            plan.refused[kind, name] = now_s + limits.avoid_s


def _is_beside_others(gang: Gang, uid: str, miss: Miss) -> bool:
    """Return whether a member was planned beside pods of others, in vain.

    It must be beside pods like itself. Some of its kind had come, none to its node.
    """
    places = {node for kind, node in miss.come if kind == gang.kind_of(uid)}
    is_near = _is_near_its_like(gang.members[uid])
    return is_near and bool(places) and gang.plan.places[uid] not in places


def _is_near_its_like(member: Member) -> bool:
    """Return whether a member must be beside pods with its own labels."""
    wanted = member.demands.together
    return bool(wanted) and all(
        requirement.matches(member.traits.labels)
        for selector in wanted
        for requirement in selector
    )


def _offered_before(gang: Gang, uid: str) -> frozenset[str]:
    """Return the nodes that a member's kind was offered before any member had come.

    Empty for one that must be near another kind: it was offered none.
    """
    member = gang.members[uid]
    if member.demands.awaits and not member.demands.awaits_pod(member.traits.labels):
        return frozenset()
    return gang.plan.lists.get(gang.kind_of(uid), frozenset())


def _awaits(gang: Gang, uid: str, kind: str) -> bool:
    """Return whether a member must be near one of this kind, which is in no way."""
    demands = gang.members[uid].demands
    return bool(demands.awaits) and any(
        demands.awaits_pod(gang.members[other].traits.labels)
        for other in gang.kinds.get(kind, ())
    )


def _places(gang: Gang, uids: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return (kind, planned or present node) of these members."""
    nodes = gang.plan.places | gang.nodes
    return tuple((gang.kind_of(uid), nodes[uid]) for uid in uids if uid in nodes)


def count_vain(gang: Gang, now_s: float, limits: Limits) -> None:
    """Count a plan that has just ended in vain; pause if they held chips too long.

    The next plan may hold chips for `plan_s` and then for `permit_s`. A plan that ends
    after its deadline, since a step came late, counts until then.
    """
    plan = gang.plan
    plan.vain = [held for held in plan.vain if now_s - held[0] < _HOUR_S]
    plan.vain.append((now_s, min(now_s, plan.until_s) - plan.planned_s))
    spare_s = limits.vain_s - limits.plan_s - limits.permit_s
    spare_s -= sum(held_s for _, held_s in plan.vain)
    for end_s, held_s in plan.vain:
        if spare_s >= 0:
            return
        spare_s += held_s
        plan.again_s = max(plan.again_s, end_s + _HOUR_S)


def read_learnt(gang: Gang) -> Iterator[Learnt]:
    """Yield what the scheduler has shown of a job: all of it, then less, then nothing.

    What is in the way of siblings is given up before refused nodes are. Last comes what
    it has not shown to be wrong: that pods of others are beside which members may be.
    """
    views = list(_read_shown(gang))
    yield from views
    kinds = frozenset(
        kind
        for kind, uids in gang.kinds.items()
        if kind not in gang.plan.near_own
        and _is_near_its_like(gang.members[next(iter(uids))])
    )
    if kinds:
        yield from (replace(view, beside_others=kinds) for view in views)


def _read_shown(gang: Gang) -> Iterator[Learnt]:
    refused: dict[str, frozenset[str]] = {}
    for kind, node in gang.plan.refused:
        refused[kind] = refused.get(kind, frozenset()) | {node}
    apart, caps = frozenset(gang.plan.apart), tuple(gang.plan.caps)
    yield Learnt(apart=apart, caps=caps, refused=refused)
    levels = _read_levels(gang)
    if levels:  # more fit where others are fuller: a spread over zones
        yield Learnt(levels=levels, refused=refused)
    if len(caps) > 1:  # the newest may rest on a scheduler that was late
        yield Learnt(apart=apart, caps=caps[:-1], refused=refused)
    if apart or caps:
        yield Learnt(refused=refused)
    if refused and (apart or caps):
        yield Learnt(apart=apart, caps=caps)
    if refused:
        yield NOTHING_LEARNT


def _read_levels(gang: Gang) -> tuple[Level, ...]:
    """Return the caps of each kind as a demand to spread its pods over their nodes.

    The first cap of a kind was met while no pod was elsewhere. Later ones may be of
    parts that overlap, since pods were all around.
    """
    plan = gang.plan
    levels = []
    for kind in gang.kinds:
        caps = [cap for cap in plan.caps if cap.kind == kind]
        parts: list[frozenset[str]] = []
        for cap in caps:
            if all(cap.nodes.isdisjoint(part) for part in parts):
                parts.append(cap.nodes)
        if caps:
            levels.append(Level(kind, min(cap.most for cap in caps), tuple(parts)))
        elif (kind, kind) in plan.apart:
            levels.append(Level(kind, 1))
    return tuple(levels)
