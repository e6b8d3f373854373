"""Members about which kube-scheduler does not ask before others of the job are bound.

A pod with a required affinity to pods of another kind is offered no node before one of
these has one. If the scheduler has found that out, it leaves the pod alone until such
a pod is *bound*, or for five minutes: that one waits at the gate is no event for it.

Source:
    kube-scheduler v1.36.3, plugins/interpodaffinity/plugin.go,
    isSchedulableAfterPodChange and isSchedulableAfterNodeChange.
"""

from collections.abc import Collection

from extender.gang.gang import Gang


def waits_for_bound(gang: Gang, absent: Collection[str]) -> bool:
    """Return whether members have not come because others of their plan are not bound.

    Only if it is sure that they may have their nodes then: nodes beside those others,
    which demand the same of nodes; and no demand is there that a plan does not read.

    Args:
        absent: UIDs of the members of the plan without a waiting bind call.
    """
    plan = gang.plan
    left, come = set(absent), set(plan.waiting_calls)
    if not plan.is_gated or left & (plan.accepted | plan.misses.keys()):
        return False
    while left:
        following = {
            uid for uid in left if any(_follows(gang, uid, other) for other in come)
        }
        if not following:
            return False
        left -= following
        come |= following
    return True


def _follows(gang: Gang, uid: str, other: str) -> bool:
    """Return whether a member is planned beside another that it must be near."""
    member, leader = gang.members[uid], gang.members[other]
    demands = member.demands
    return (
        bool(demands.awaits)
        and demands.awaits_pod(leader.traits.labels)
        and not demands.awaits_pod(member.traits.labels)
        and not demands.has_unread
        and demands.on_nodes == leader.demands.on_nodes
        and gang.plan.places[uid] == gang.plan.places[other]
    )
