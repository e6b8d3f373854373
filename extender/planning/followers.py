"""Pods that do not exist yet, as their controller will make them from a template.

Some controllers make pods of a job only once others are ready. The first pods are
planned together with these, so that chips are kept for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from extender.cache import decode
from extender.cache.requests import Resources
from extender.gang.gang import Gang
from extender.gang.membership import AbsentMember, Member, Membership, order_of
from scheduler_core.placement.siblings import Sibling
from scheduler_core.wire.pods import NpuPod


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """A member without a pod: what its pod will be and ask for."""

    absent: AbsentMember
    #: its UID and name are unlike those of any pod
    pod: NpuPod
    member: Member
    ask: Resources


def followers_of(gang: Gang) -> dict[str, Follower]:
    """Return {UID: follower} of the members without a pod that a plan is to have.

    Empty if the job runs: then the chips of the others are kept already, or were given
    back. Those with kept chips are left out.
    """
    if gang.size is None or gang.is_running:
        return {}
    models = {
        followers.role: _read_template(gang, followers.template)
        for followers in gang.size.followers
    }
    return {
        follower.pod.uid: follower
        for absent in gang.awaited
        if absent not in gang.plan.followers
        for model in [models[absent.role]]
        if model is not None
        for follower in [_number(model, absent)]
    }


def reserved_siblings(gang: Gang) -> list[Sibling]:
    """Return the members without a pod whose nodes are kept, as siblings there."""
    if gang.size is None or not gang.plan.followers:
        return []
    models = {
        followers.role: _read_template(gang, followers.template)
        for followers in gang.size.followers
    }
    return [
        Sibling(name, model.member.demands, model.member.traits.labels, node)
        for absent, node in gang.plan.followers.items()
        for model in [models.get(absent.role)]
        if model is not None
        for name in [_name(absent)]
    ]


def _read_template(gang: Gang, template: Mapping[str, object]) -> Follower | None:
    """Return what a template's pods ask for; None if it cannot be read."""
    _, namespace, _ = gang.job.split("/", 2)
    change = decode.template_change(template, namespace)
    if change is None or change.member is None:
        return None
    priority = max(member.priority for member in gang.members.values())
    return Follower(
        absent=AbsentMember(gang.job, "", (0, 0)),
        pod=change.pod,
        member=replace(change.member, priority=priority),
        ask=change.ask,
    )


def _number(model: Follower, absent: AbsentMember) -> Follower:
    name = _name(absent)
    membership = Membership(job=absent.job, order=order_of(absent.role, absent.number))
    return replace(
        model,
        absent=absent,
        pod=replace(model.pod, uid=name, name=name),
        member=replace(model.member, name=name, membership=membership),
    )


def _name(absent: AbsentMember) -> str:
    """Return a name for a member without a pod, unlike that of any pod."""
    return "/".join(map(str, (absent.job, absent.role, *absent.number)))
