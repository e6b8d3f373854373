"""Judge a job with fault pods: which of its pods would go, and where to.

It is pure. Places are planned on an overlay, as if the pods had gone: their chips count
as free, but for those with faults. Nothing is reserved.

With `--rescheduling evict` it also says which of the pods are evicted. A controller may
end more pods than the evicted one: its group, or the whole job. Where the fault pods
take all others with them, they alone are evicted. Otherwise all pods that have to go
are, after it was read what all these evictions together do.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extender.cache.cache import Cache
from extender.cache.node_state import Tenant
from extender.gang import fault_policy
from extender.gang.fault_policy import FaultPolicy, Switch
from extender.gang.gang import Gang
from extender.gang.size import whole
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import READING
from extender.rescheduling.assessment import Assessment, Word
from extender.rescheduling.ends import End, Reach
from extender.rescheduling.moves import KeptPlace, MoveFacts
from extender.rescheduling.trial import Trial
from scheduler_core.node import chips
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.rescheduling import ladder
from scheduler_core.rescheduling.ladder import (
    FaultJob,
    Loss,
    Move,
    NoSpare,
    Place,
    Rung,
)
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.annotations import ALLOCATED_ON

_WITH_MARKS = "jobs in SuperPoDs or under leaf switches do not go as a whole yet"
_UNASKED = Assessment(word=Word.UNASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A job with fault pods, of which is asked which pods would go."""

    #: key of the job, or UID of a pod that is a job by itself
    job: str
    #: {UID of a fault pod: mask of its chips with faults}
    faulty: Mapping[str, int]
    #: what its PodGroup says about faults; None if it has none
    group: Mapping[str, str] | None = None
    #: why that cannot be read; "" if it can
    problem: str = ""
    #: what has to be known of its move; None if pods are told only
    facts: MoveFacts | None = None


def judge(
    cache: Cache, question: Question, topology: Callable[[Gang], TopologySnapshot]
) -> Assessment:
    """Return which pods of a job would go because of faults, and where to.

    Args:
        cache: Read only.
        topology: Returns leaf switches, SuperPoDs and job rules for a job.
    """
    gang = find_gang(cache, question.job)
    if gang is None or not question.faulty.keys() <= gang.nodes.keys():
        return _UNASKED  # a pod has gone; it is seen in a moment
    wishes = [found.texts for found in map(cache.wishes, gang.members) if found]
    policy = fault_policy.policy_of(wishes, question.group)
    is_asking = policy.switch is not Switch.OFF or bool(policy.problem)
    if not is_asking and not (question.problem and wishes):
        return _UNASKED
    why = question.problem or _why_stays(cache, gang, policy)
    if why:
        assessment = Assessment(word=Word.STAYS, why=why)
    elif gang.size is None and gang.size_source is not None:
        assessment = Assessment(word=Word.UNKNOWN, why=READING)
    else:
        assessment = _judge_places(cache, gang, policy, question, topology(gang))
    ends = question.facts.ends.values() if question.facts is not None else ()
    delays = {end.remark for end in ends if end.remark}
    return replace(
        assessment,
        remarks=(*policy.remarks, *sorted(delays)),
        is_evicting=question.facts is not None,
        switch=policy.switch,
        owner="" if question.job in cache.gangs else cache.pods[question.job].owner,
    )


def find_gang(cache: Cache, job: str) -> Gang | None:
    """Return a job; one of one pod for the UID of a pod that is a job by itself.

    None if no pod of the job is left. Also None for a pod by itself that says nothing
    about faults.
    """
    gang = cache.gangs.get(job)
    if gang is not None:
        return gang
    pod, wishes = cache.pods.get(job), cache.wishes(job)
    if pod is None or wishes is None or wishes.alone is None or pod.terminal:
        return None
    return Gang(
        job=wishes.alone.membership.job,
        members={job: wishes.alone},
        bound={job},
        kinds={wishes.alone.demands.kind: {job}},
        nodes={job: pod.node},
        size=whole(1),
    )


def _why_stays(cache: Cache, gang: Gang, policy: FaultPolicy) -> str:
    """Return why no pod of a job may go, whatever is free; "" if pods may."""
    if policy.problem:
        return policy.problem
    for uid in gang.members:
        pod, wishes = cache.pods.get(uid), cache.wishes(uid)
        is_of_volcano = wishes is not None and wishes.is_of_volcano
        if is_of_volcano or (pod is not None and ALLOCATED_ON in pod.annotations):
            return "pods that Volcano schedules are not moved yet"
    return gang.problem if gang.size is None else ""


def _judge_places(
    cache: Cache,
    gang: Gang,
    policy: FaultPolicy,
    question: Question,
    topology: TopologySnapshot,
) -> Assessment:
    faulty, facts = question.faulty, question.facts or MoveFacts()
    trial = Trial(
        cache=cache,
        gang=gang,
        topology=topology,
        tenants={
            uid: tenant
            for uid, tenant in _running(cache, gang)
            if uid not in facts.asked
        },
        faulty=faulty,
        facts=facts,
    )
    if not faulty.keys() <= trial.tenants.keys():
        return _UNASKED  # a pod ends; it is seen in a moment
    reach = reach_of(facts, faulty.keys(), policy.rungs)
    if isinstance(reach, str):
        return Assessment(word=Word.STAYS, why=reach)
    job = FaultJob(
        homes={
            uid: Place(tenant.pod.node, tenant.chips)
            for uid, tenant in trial.tenants.items()
        },
        faulty=frozenset(faulty),
        rungs=reach.rungs,
        followers=reach.followers & trial.tenants.keys(),
        can_lose=reach.is_of_pods
        and _can_lose(gang, next(iter(trial.tenants)), facts.asked.union(faulty)),
    )
    return _assess(
        ladder.choose(job, trial.fit), trial, is_evicting=question.facts is not None
    )


def _assess(
    choice: Move | Loss | NoSpare, trial: Trial, *, is_evicting: bool
) -> Assessment:
    if isinstance(choice, NoSpare):
        return Assessment(word=Word.NO_SPARE, why=choice.missing)
    leaving = [trial.tenants[uid] for uid in choice.leaving]
    if any(tenant.is_unconfirmed for tenant in leaving):
        why = "the agents have not confirmed the chips of all its pods yet"
        return Assessment(word=Word.UNKNOWN, why=why)
    assessment = _describe(choice, trial.tenants)
    return _decide(assessment, choice, trial) if is_evicting else assessment


def _decide(assessment: Assessment, choice: Move | Loss, trial: Trial) -> Assessment:
    """Add to an assessment the pods that are evicted, and the places that are kept."""
    evicted = evicted_of(trial.facts, trial.faulty.keys(), choice.leaving)
    if isinstance(evicted, str):
        return Assessment(word=Word.STAYS, why=evicted)
    if evicted.unread:
        return replace(assessment, unread=evicted.unread)
    if isinstance(choice, Move) and choice.returning and _has_marks(trial.gang):
        return Assessment(word=Word.STAYS, why=_WITH_MARKS)
    return replace(
        assessment,
        kept_places=tuple(
            _kept_place(trial, uid, choice, is_evicted=uid in evicted.uids)
            for uid in choice.leaving
        ),
    )


def _kept_place(
    trial: Trial, uid: str, choice: Move | Loss, *, is_evicted: bool
) -> KeptPlace:
    pod, member = trial.tenants[uid].pod, trial.gang.members[uid]
    kept_place = KeptPlace(
        uid=uid,
        name=pod.name,
        namespace=pod.namespace,
        slot=member.membership.place,
        line=member.membership.generation.line,
        resource=pod.shape.resource,
        home=pod.node,
        is_evicted=is_evicted,
    )
    if isinstance(choice, Loss):
        return kept_place
    return replace(
        kept_place,
        node=choice.places[uid].node,
        chips=choice.places[uid].chips,
        annotations=trial.annotations_of(uid, returns=uid in choice.returning),
    )


def _has_marks(gang: Gang) -> bool:
    """Whether pods of a job have annotations about SuperPoDs or leaf switches."""
    return any(
        SP_BLOCK in member.traits.annotations or asks_leaves(member.traits.labels)
        for member in gang.members.values()
    )


def _describe(choice: Move | Loss, tenants: Mapping[str, Tenant]) -> Assessment:
    names = tuple(tenants[uid].pod.name for uid in choice.leaving)
    if isinstance(choice, Loss):
        return Assessment(word=Word.SHRINKS, why=choice.missing, leaving=names)
    return Assessment(
        word=Word.MOVES,
        rung=choice.rung,
        leaving=names,
        places={
            tenants[uid].pod.name: _describe_place(choice.places[uid])
            for uid in choice.leaving
            if uid not in choice.returning
        },
    )


def _describe_place(place: Place) -> str:
    return f"{place.node} (chips {','.join(map(str, chips.ids_of(place.chips)))})"


def _running(cache: Cache, gang: Gang) -> Iterator[tuple[str, Tenant]]:
    """Yield UID and chips of each running pod of a job, by rank."""
    for uid in sorted(gang.nodes.keys() - gang.ending, key=gang.rank_key):
        pod = cache.pods[uid]
        resource_state = cache.resource_state(pod.node, pod.shape.resource)
        if resource_state is not None and uid in resource_state.tenants:
            yield uid, resource_state.tenants[uid]


def _can_lose(gang: Gang, first: str, faulty: Collection[str]) -> bool:
    """Return whether a job goes on without its fault pods.

    It does with the pods that it needs, and with the pod that the others connect to. A
    job of logical SuperPoDs needs all pods of each.

    Args:
        first: UID of the running pod with the lowest rank.
    """
    member = gang.members[first]
    is_led = first not in faulty or member.membership.rank not in (None, 0)
    if not is_led or SP_BLOCK in member.traits.annotations:
        return False
    rest = replace(gang, bound=gang.bound.difference(faulty))
    return rest.is_running and not rest.lacks_members


# -- evictions -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Pods that end with the fault pods, by what was read of their controllers."""

    #: rungs that are left
    rungs: tuple[Rung, ...]
    #: UIDs of other pods that end with the fault pods
    followers: frozenset[str] = field(default_factory=frozenset)
    #: whether no other pod ends with the fault pods
    is_of_pods: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Pods to evict; or those of which it is to be read first what that does."""

    uids: frozenset[str] = field(default_factory=frozenset)
    unread: frozenset[str] = field(default_factory=frozenset)


def reach_of(
    facts: MoveFacts, faulty: Collection[str], rungs: tuple[Rung, ...]
) -> Reached | str:
    """Return the pods that end if fault pods are evicted; or why none may be.

    Args:
        faulty: UIDs of the fault pods.
        rungs: Those that the job allows. Pods that have just come again stay if a
            fault strikes one of them.
    """
    if facts.is_gathering:
        rungs = (Rung.PODS, Rung.JOB)
    ends = [facts.ends[uid] for uid in faulty if uid in facts.ends]
    if len(ends) < len(faulty):
        return Reached(rungs=rungs)  # not read yet
    reason = _find_reason(ends)
    if reason:
        return reason
    reach = max(end.reach for end in ends)
    if reach is not Reach.JOB:
        followers = frozenset(_with_groups(facts, faulty)).difference(faulty)
        is_of_pods = reach is Reach.POD
        return Reached(rungs=rungs, followers=followers, is_of_pods=is_of_pods)
    if Rung.JOB not in rungs:
        return "an eviction ends all pods of the job, which allows its fault pods only"
    return Reached(rungs=(Rung.JOB,), is_of_pods=False)


def evicted_of(
    facts: MoveFacts, faulty: Collection[str], leaving: Collection[str]
) -> Evicted | str:
    """Return the pods to evict so that others leave; or why none may be.

    Args:
        faulty: UIDs of the fault pods.
        leaving: UIDs of all pods that are to leave, the fault pods among them.
    """
    pods, broken = frozenset(leaving), frozenset(faulty)
    if not facts.ends.keys() >= broken:
        return Evicted(unread=broken)
    if pods == broken or pods <= _covered(facts, broken, pods):
        return Evicted(uids=broken)
    if not facts.ends.keys() >= pods:
        return Evicted(unread=pods)
    return _find_reason(facts.ends.values()) or Evicted(uids=pods)


def _find_reason(ends: Iterable[End]) -> str:
    """Return why pods must not be evicted; "" if their job survives it."""
    reasons = (end.reason for end in ends if not end.can_evict)
    return min(reasons, default="")


def _covered(
    facts: MoveFacts, broken: frozenset[str], pods: frozenset[str]
) -> frozenset[str]:
    """Return the pods that end if the fault pods alone are evicted, as far as known."""
    if facts.ends.keys() != broken:
        return frozenset()  # what more evictions do says nothing of fewer
    if any(facts.ends[uid].reach is Reach.JOB for uid in broken):
        return pods
    return frozenset(_with_groups(facts, broken))


def _with_groups(facts: MoveFacts, uids: Collection[str]) -> Iterator[str]:
    for uid in uids:
        yield uid
        if facts.ends[uid].reach is Reach.GROUP:
            yield from facts.groups.get(uid, ())
