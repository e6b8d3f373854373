"""Learn from pods that did not get their planned node, for the next plans of the job.

kube-scheduler gives no reason: a node is in the list of a pod or it is not. It counts a
pod on its node as soon as filter has let the pod go there (`NodeAccepted`). So what is
missing, of the nodes that it offered before any member had come, shows what is in the
way: a member of the job, or the node itself.

Nothing is learnt under Volcano, whose session finds places for siblings.
"""

from collections.abc import Collection

from extender.gang.events import Limits, NodeNotOffered
from extender.gang.gangs import Gang, Miss
from scheduler_core.placement.siblings import Cap

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
            withheld=event.before - event.offered,
            come=_places(gang, come),
        )


def learn(gang: Gang, uid: str, now_s: float, limits: Limits) -> None:
    """Learn why a member did not get its planned node.

    If members of its kind had come, no more of the kind fit onto their nodes and the
    missing ones together: one on a node, or in a zone. Else members on the planned node
    are in the way, or the missing nodes themselves are.
    """
    plan = gang.plan
    if not plan.is_gated:
        return
    kind, node = gang.kind_of(uid), plan.places[uid]
    miss = plan.misses.get(uid)
    come = _places(gang, plan.waiting_calls) if miss is None else miss.come
    missing = frozenset((node,)) if miss is None else miss.withheld | {node}
    alike = frozenset(place for other, place in come if other == kind)
    kinds = {other for other, place in come if place == node}
    if uid in plan.accepted:  # something keeps it after the filter
        plan.refused[kind, node] = now_s + limits.avoid_s
    elif alike and missing - alike:
        nodes = missing | alike
        members = [*come, *_places(gang, gang.nodes)]
        most = sum(other == kind and place in nodes for other, place in members)
        plan.caps[Cap(kind, nodes, most)] = None
    elif kinds:
        plan.apart.update((kind, other) for other in kinds & {kind} or kinds)
    else:
        for name in missing:
            plan.refused[kind, name] = now_s + limits.avoid_s


def _places(gang: Gang, uids: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return (kind, planned or present node) of these members."""
    nodes = gang.plan.places | gang.nodes
    return tuple((gang.kind_of(uid), nodes[uid]) for uid in uids if uid in nodes)


def count_vain(gang: Gang, now_s: float, limits: Limits) -> None:
    """Count a plan that has just ended in vain; pause if they held chips too long.

    The next plan may hold chips for `plan_s` and then for `gate_s`.
    """
    plan = gang.plan
    plan.vain = [held for held in plan.vain if now_s - held[0] < _HOUR_S]
    plan.vain.append((now_s, now_s - plan.planned_s))
    spare_s = limits.vain_s - limits.plan_s - limits.gate_s
    spare_s -= sum(held_s for _, held_s in plan.vain)
    for end_s, held_s in plan.vain:
        if spare_s >= 0:
            return
        spare_s += held_s
        plan.again_s = max(plan.again_s, end_s + _HOUR_S)
