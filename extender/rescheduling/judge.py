"""Judge a job with fault pods: which of its pods would go, and where to.

It is pure. Places are planned on an overlay, as if the pods had gone: their chips count
as free, but for those with faults. Nothing is reserved.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extender.cache.cache import Cache
from extender.cache.node_state import Tenant
from extender.cache.overlay import CacheOverlay, overlay_cache
from extender.gang import fault_policy
from extender.gang.fault_policy import FaultPolicy, Switch
from extender.gang.gang import Gang
from extender.gang.job_plan import JobPlan
from extender.gang.size import whole
from extender.planning import plan
from extender.planning.plan_input import TopologySnapshot
from extender.refusals import READING, Refusal
from extender.rescheduling.assessment import Assessment, Word
from extender.scheduling import node_demands
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.placement.pod import place
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.rescheduling import ladder
from scheduler_core.rescheduling.ladder import FaultJob, Loss, Move, NoSpare, Place
from scheduler_core.wire.annotations import ALLOCATED_ON
from scheduler_core.wire.pods import NpuPod

#: Reasons of nodes that a sentence lists.
_REASONS = 3
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
        assessment = _judge_places(cache, gang, policy, question.faulty, topology(gang))
    return replace(assessment, remarks=policy.remarks)


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
    faulty: Mapping[str, int],
    topology: TopologySnapshot,
) -> Assessment:
    trial = _Trial(
        cache=cache,
        gang=gang,
        topology=topology,
        tenants=dict(_running(cache, gang)),
        faulty=faulty,
    )
    job = FaultJob(
        homes={
            uid: Place(tenant.pod.node, tenant.chips)
            for uid, tenant in trial.tenants.items()
        },
        faulty=frozenset(faulty),
        rungs=policy.rungs,
        can_lose=_can_lose(gang, next(iter(trial.tenants)), frozenset(faulty)),
    )
    choice = ladder.choose(job, trial.fit)
    if isinstance(choice, NoSpare):
        return Assessment(word=Word.NO_SPARE, why=choice.missing)
    leaving = [trial.tenants[uid] for uid in choice.leaving]
    if any(tenant.is_unconfirmed for tenant in leaving):
        why = "the agents have not confirmed the chips of all its pods yet"
        return Assessment(word=Word.UNKNOWN, why=why)
    return _describe(choice, trial.tenants)


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
    return rest.has_bound and not rest.lacks_members


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A job with fault pods, to be planned as if some of its pods had gone."""

    cache: Cache
    gang: Gang
    topology: TopologySnapshot
    #: {UID: pod and chips} of its running pods, by rank
    tenants: Mapping[str, Tenant]
    #: {UID of a fault pod: mask of its chips with faults}
    faulty: Mapping[str, int]
    #: {whether nodes with faults are left out: nodes that its pods may have}
    _names: dict[bool, list[str]] = field(default_factory=dict)

    def fit(self, avoids: bool, uids: frozenset[str]) -> Mapping[str, Place] | str:  # noqa: FBT001  # as `ladder.Fit`
        """Return places of pods once they have gone; or what is missing.

        All other running pods keep their chips. Pods without a node have plans of their
        own.
        """
        gang = self.gang
        waiting = gang.members.keys() - gang.bound
        trial = replace(
            gang,
            bound=gang.bound - uids,
            absent=gang.absent | waiting,
            nodes={uid: node for uid, node in gang.nodes.items() if uid not in uids},
            plan=JobPlan(),
        )
        view, names = self._without(uids), self._names_for(avoids=avoids)
        planned = plan.plan(
            self.cache, trial, names, 0, self.topology, view, may_be_smaller=False
        )
        if isinstance(planned, Refusal):
            pod = self.tenants[min(uids)].pod
            return f"{planned.text}{self._describe_nodes(view, pod, names)}"
        return {
            made.kept_for: Place(made.node, made.chips)
            for made in planned
            if isinstance(made.kept_for, str)
        }

    def _names_for(self, *, avoids: bool) -> list[str]:
        """Return the nodes that pods of the job may have, as far as it is known."""
        names = self._names.get(avoids)
        if names is None:
            first, cache = next(iter(self.tenants)), self.cache
            closed = cache.closed_nodes(first)
            if avoids:
                closed |= {self.tenants[uid].pod.node for uid in self.faulty}
            kinds = {member.demands.on_nodes for member in self.gang.members.values()}
            names = self._names[avoids] = [
                name
                for name in cache.index.names
                if name not in closed and all(self._admits(name, one) for one in kinds)
            ]
        return names

    def _admits(self, name: str, on_nodes: str) -> bool:
        node = self.cache.nodes[name]
        return node_demands.admits(on_nodes, name, node.labels, node.taints)

    def _without(self, uids: Collection[str]) -> CacheOverlay:
        """Return the cache as if pods had gone, and no chip with a fault served."""
        free: defaultdict[tuple[str, str], int] = defaultdict(int)
        broken: defaultdict[tuple[str, str], int] = defaultdict(int)
        for uid in uids:
            tenant = self.tenants[uid]
            free[_place_of(tenant.pod)] |= tenant.chips & ~self._nominated(tenant.pod)
        for uid, mask in self.faulty.items():
            broken[_place_of(self.tenants[uid].pod)] |= mask
        states = []
        for node, resource in dict.fromkeys((*free, *broken)):
            state = self.cache.index.nodes(resource).get(node)
            if state is not None:
                healthy = state.healthy & ~broken[node, resource]
                now_free = (state.free | free[node, resource]) & healthy
                states.append(replace(state, healthy=healthy, free=now_free))
        return overlay_cache(self.cache, states, gone_uids=uids)

    def _nominated(self, pod: NpuPod) -> int:
        """Return the mask of chips of a pod's node that are freed for other pods."""
        return chips.union(
            reservation.chips
            for reservation in self.cache.reserved.get(pod.node, ())
            if reservation.claim is None and reservation.resource == pod.shape.resource
        )

    def _describe_nodes(
        self, view: CacheOverlay, pod: NpuPod, names: Collection[str]
    ) -> str:
        """Return why no node takes a pod; "" if one does, and too few for all pods."""
        wanted = self.cache.row_asked_for(pod.uid) or pod.shape.resource
        in_network = not self.gang.is_one
        answer = place(
            wanted, pod.total, view.index, names=names, in_network=in_network
        )
        if isinstance(answer, Placement):
            return ""
        first = answer.reasons[:_REASONS]
        listed = ", ".join(f"{count} {text}" for text, count in first)
        return f" ({listed})" if listed else ""


def _place_of(pod: NpuPod) -> tuple[str, str]:
    return pod.node, pod.shape.resource
