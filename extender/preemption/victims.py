"""Choose pods to evict so that one pod, or a whole job, of higher priority fits.

kube-scheduler chooses victims by the number of chips. `do_help` checks whether
kube-scheduler's victims free chips that form the rings a pod needs. `for_pod` and
`for_job` choose victims themselves. `for_pod` ranks victims as
`scheduler_core.preemption.victims` does. `for_job` takes the cheapest nodes, and no
more of them than the job needs. It then leaves out pods that could stay, in at most
`_TRIES` trials.

At first, `for_pod` and `for_job` leave out these pods:

- a pod of the same or a higher priority;
- a pod whose chips the node agent has not confirmed: the pod may have other chips
  than its annotation says;
- a pod of a job with a bound member of such a priority, or with a protected one: that
  member would keep chips for an incomplete job;
- a pod of the job itself that is to fit.

A job of several pods is evicted as a whole. So an unconfirmed pod can be evicted
with its job. A terminating pod may be chosen, but no eviction is sent for it, and
nothing else of its job is evicted: its chips come free by themselves.

All functions are pure. They try a choice on an overlay, as if the victims were gone.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from extender.cache import reservations
from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState, Tenant
from extender.cache.overlay import CacheOverlay, overlay_cache
from extender.gang.gang import Gang
from extender.planning import plan, plan_input
from extender.planning.plan_input import TopologySnapshot
from extender.preemption.attempt import Attempt, AttemptStarted, Victim
from extender.refusals import Refusal
from extender.scheduling import capacity
from scheduler_core.node import chips
from scheduler_core.preemption import victims
from scheduler_core.preemption.victims import Preemptor, RunningPod
from scheduler_core.wire.pods import NpuPod

#: Nodes compared for one choice, the cheapest first; each costs up to some
#: milliseconds.
MOST_NODES = 64
#: Victims for which a plan without their eviction is tried, for a job.
_TRIES = 24
#: Priority of pods that are ending: they count as the first victims.
_ENDING = -(1 << 31)


def do_help(cache: Cache, pod: NpuPod, node: str, uids: Iterable[str]) -> bool:
    """Return whether a node has the chips for a pod once the pods `uids` are evicted.

    Only chips are checked, not CPU or memory. Chips that the preemptor is freeing for a
    different pod or job do not count as free.

    Args:
        cache: Read only.
        pod: The pod to place. It asks for NPUs and has no node.
        node: Name of the node.
        uids: UIDs of the pods to evict from the node.
    """
    resource = pod.shape.resource
    state = cache.index.nodes(resource).get(node)
    resource_state = cache.resource_state(node, resource)
    if state is None or resource_state is None or state.barred:
        return False
    row = state.row_for(resource)
    if row is None or node in cache.closed_nodes(pod.uid):
        return False
    own_keys = {pod.uid, cache.job_of(pod.uid)}
    reserved = _nominated(cache, resource_state, but=own_keys)
    tenants = resource_state.tenants
    if resource_state.is_counted:
        freed_count = sum(tenants[uid].pod.total for uid in uids if uid in tenants)
        return state.free.bit_count() + freed_count >= pod.total
    victim_chips = chips.union(tenants[uid].chips for uid in uids if uid in tenants)
    freed = victim_chips & ~reserved
    free_chips = state.free_for(row) | freed & state.usable(row)
    return bool(chips.choose(row, free_chips, pod.total))


def for_pod(
    cache: Cache, pod: NpuPod, names: Sequence[str], protected: Collection[str] = ()
) -> AttemptStarted | None:
    """Choose pods to evict so that a one-pod job fits on one of the nodes.

    Args:
        cache: Read only.
        pod: The only pod of the job. It has no node and no reservation.
        names: Nodes that refused the pod and may fit it after evictions.
        protected: UIDs of pods that may not be evicted.

    Returns:
        None if no eviction lets the pod fit. Also None if it fits a node with evictable
        pods already.
    """
    priority = cache.priority(pod.uid)
    closed_names = cache.closed_nodes(pod.uid) | cache.conflicts(pod)
    resource = pod.shape.resource
    resource_states = _resource_states(cache, resource, names, closed_names)
    candidates = _evictable_pods(cache, resource_states, priority, protected)
    preemptor = Preemptor(
        wanted=resource, chips=pod.total, priority=priority, in_network=False
    )
    #: {node: whether the pod fits there but for its chips}
    roomy: dict[str, bool] = {}

    def fits(node: str, evicted: int) -> bool:
        if node not in roomy:
            roomy[node] = _fit_requests(cache, pod, node, ())
        running = [one for one in candidates[node] if one.chips & evicted]
        return roomy[node] or _fit_requests(
            cache, pod, node, _uids_of_running(cache, running)
        )

    choice = victims.preempt(
        preemptor, cache.index, candidates, names=candidates, fits=fits
    )
    if choice is None or not choice.victims:
        return None
    return AttemptStarted(
        attempt=Attempt(
            beneficiary=pod.uid,
            title=f"pod {pod.namespace}/{pod.name}",
            priority=priority,
            victims=_pods_to_evict(cache, _uids_of_running(cache, choice.victims)),
        ),
        resource=resource,
        chips={choice.node: chips.mask_of(choice.place.chips)},
    )


def for_job(
    cache: Cache,
    gang: Gang,
    names: Sequence[str],
    protected: Collection[str] = (),
    topology: TopologySnapshot = plan_input.PLAIN,
    lists: Mapping[str, frozenset[str]] | None = None,
) -> AttemptStarted | None:
    """Choose pods to evict so that all unbound pods of a job fit.

    Args:
        cache: Read only.
        gang: The job. All its pods exist, and it has no plan.
        names: Nodes that refused pods of the job and may fit them after evictions.
        protected: UIDs of pods that may not be evicted.
        topology: Leaf switches, SuperPoDs and job rules for this job.
        lists: {kind of its members: those of `names` that it may have}; None is all.

    Returns:
        None if no eviction would let the job fit, or if it fits without one.
    """
    unbound = gang.unbound
    priority = min(gang.members[uid].priority for uid in unbound)
    closed_names = cache.closed_nodes(unbound[0])
    resource = plan_input.resource_of(cache, gang)
    resource_states = _resource_states(cache, resource, names, closed_names)
    spared = gang.members.keys() | protected
    candidates = _evictable_pods(cache, resource_states, priority, spared)
    trial = _JobTrial(
        cache=cache,
        gang=gang,
        names=[name for name in names if name not in closed_names],
        topology=topology,
        lists=lists or {},
    )
    choice = _fewest_nodes(trial, candidates)
    if choice is None:
        return None
    uids, places = _needed_of(trial, resource, *choice)
    for uid in sorted(uids, key=lambda uid: _importance(cache, uid))[:_TRIES]:
        fewer = uids - _uids_of_job(cache, uid)
        fits = trial.places(fewer) if uid in uids else None
        if fits is not None:
            uids, places = _needed_of(trial, resource, fewer, fits)
    return AttemptStarted(
        attempt=Attempt(
            beneficiary=gang.job,
            title=gang.title,
            priority=priority,
            victims=_pods_to_evict(cache, uids),
        ),
        resource=resource,
        chips=places,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobTrial:
    """A job and its candidate nodes, to be planned as if some pods had been evicted."""

    cache: Cache
    gang: Gang
    names: Sequence[str]
    topology: TopologySnapshot
    #: {kind of its members: candidate nodes}; empty: each has all
    lists: Mapping[str, frozenset[str]]

    def places(self, gone_uids: Collection[str]) -> dict[str, int] | None:
        """Return the chips that the job would get if the pods `gone_uids` were evicted.

        The result is {node: mask of the chips of the job's unbound pods there}. None if
        the job would not fit.
        """
        view = _overlay_without(self.cache, gone_uids)
        choice = plan.plan(
            self.cache,
            self.gang,
            self.names,
            0,
            self.topology,
            view,
            lists=self.lists,
        )
        if isinstance(choice, Refusal):
            return None
        places: defaultdict[str, int] = defaultdict(int)
        for reservation in choice:
            places[reservation.node] |= reservation.chips
        return dict(places)


def _fewest_nodes(
    trial: _JobTrial, candidates: Mapping[str, Sequence[RunningPod]]
) -> tuple[frozenset[str], dict[str, int]] | None:
    """Return UIDs of pods to evict so that a job fits, and the chips the job then gets.

    The pods are all `candidates` of the first n nodes, with the smallest n for which
    the job fits. All other bound pods of their jobs are added. None if the job fits
    without an eviction, or does not fit even if all `candidates` are evicted.

    Args:
        trial: The job.
        candidates: {node: pods that may be evicted}, the cheapest nodes first.
    """
    order = list(candidates)

    def try_nodes(count: int) -> tuple[frozenset[str], dict[str, int]] | None:
        running = [
            running_pod for name in order[:count] for running_pod in candidates[name]
        ]
        uids = _uids_of_running(trial.cache, running)
        places = trial.places(uids)
        return None if places is None else (uids, places)

    best = try_nodes(len(order))
    if best is None or try_nodes(0) is not None:
        return None
    low, high = 1, len(order)
    while low < high:
        middle = (low + high) // 2
        choice = try_nodes(middle)
        if choice is None:
            low = middle + 1
        else:
            best, high = choice, middle
    return best


def _needed_of(
    trial: _JobTrial, resource: str, uids: frozenset[str], places: dict[str, int]
) -> tuple[frozenset[str], dict[str, int]]:
    """Return the pods that a plan needs gone, and its chips then.

    These are the pods whose chips it uses. If it does not fit so, for lack of CPU,
    memory or pod places, they are all pods of its nodes, or of all nodes.

    Args:
        uids: UIDs of pods. If all of them are evicted, the plan fits.
        places: The plan, {node: mask of chips}.
    """
    cache = trial.cache
    on_nodes = dict.fromkeys(places, -1)
    for chip_masks in (places, on_nodes):
        fewer = _uids_of_plan(cache, resource, uids, chip_masks)
        if fewer == uids:
            break
        fits = trial.places(fewer)
        if fits is not None:
            return fewer, fits
    return uids, places


def _uids_of_plan(
    cache: Cache, resource: str, uids: Collection[str], places: Mapping[str, int]
) -> frozenset[str]:
    """Return the UIDs of the pods whose chips a plan uses.

    These are the pods of `uids` that would free chips of the plan, and all bound pods
    of their jobs, because a job is evicted as a whole.

    Args:
        cache: Read only.
        resource: Resource of the plan's chips.
        uids: UIDs of pods. If all of them are evicted, the plan fits.
        places: The plan, {node: mask of chips}.
    """

    def wanted_chips(pod: NpuPod) -> int:
        return places.get(pod.node, 0) if pod.shape.resource == resource else 0

    blocking_uids = [
        uid for uid in uids if _freed_chips(cache, uid) & wanted_chips(cache.pods[uid])
    ]
    return frozenset().union(*(_uids_of_job(cache, uid) for uid in blocking_uids))


def is_short(cache: Cache, pod: NpuPod, node: str) -> bool:
    """Return whether a node lacks chips, CPU, memory or pod places for a pod.

    If the node lacks none of these, kube-scheduler refuses the pod there for some other
    reason. Then an eviction might not help.
    """
    resource_state = cache.resource_state(node, pod.shape.resource)
    if resource_state is None:
        return False
    chip_count = sum(tenant.pod.total for tenant in resource_state.tenants.values())
    remaining = capacity.free_on(cache, node).minus(cache.requests.ask(pod.uid))
    return chip_count + pod.total > resource_state.allocatable or min(remaining) < 0


def _resource_states(
    cache: Cache, resource: str, names: Iterable[str], closed_names: Collection[str]
) -> Iterator[ResourceState]:
    """Yield the chips and pods of `resource` on each of the nodes `names`.

    Nodes without the resource and nodes in `closed_names` are left out.
    """
    for name in names:
        resource_state = cache.resource_state(name, resource)
        if resource_state is not None and name not in closed_names:
            yield resource_state


def _evictable_pods(
    cache: Cache,
    resource_states: Iterable[ResourceState],
    priority: int,
    protected: Collection[str],
) -> dict[str, list[RunningPod]]:
    """Return {node: pods that may be evicted}, the cheapest nodes first.

    A node is cheaper if the highest priority among its evictable pods is lower. With
    equal priorities the node with fewer evictable pods is cheaper. At most `MOST_NODES`
    nodes are returned.

    Args:
        cache: Read only.
        resource_states: Chips and pods of the candidate nodes.
        priority: Pods of this or a higher priority may not be evicted.
        protected: UIDs of pods that may not be evicted.
    """
    by_node = {}
    for resource_state in resource_states:
        nominated = _nominated(cache, resource_state)
        running = [
            _running_pod(cache, tenant, nominated)
            for tenant in resource_state.tenants.values()
            if tenant.chips & ~nominated
            and _may_be_evicted(cache, tenant, priority, protected)
        ]
        if running:
            by_node[resource_state.node_info.name] = running
    order = sorted(by_node, key=lambda name: (_eviction_cost(by_node[name]), name))
    return {name: by_node[name] for name in order[:MOST_NODES]}


def _eviction_cost(running: Sequence[RunningPod]) -> tuple[int, int]:
    return max(running_pod.priority for running_pod in running), len(running)


def _may_be_evicted(
    cache: Cache, tenant: Tenant, priority: int, protected: Collection[str]
) -> bool:
    pod = tenant.pod
    if cache.priority(pod.uid) >= priority or tenant.is_unconfirmed:
        return False
    return pod.deleting or all(
        cache.priority(uid) < priority and uid not in protected
        for uid in _uids_of_job(cache, pod.uid)
    )


def _uids_of_job(cache: Cache, uid: str) -> frozenset[str]:
    """Return `uid` and the UIDs of those bound pods of its job that have not ended.

    Only `uid` for a terminating pod: nothing is evicted because of it.
    """
    gang = cache.gang_of(uid)
    if gang is None or cache.pods[uid].deleting:
        return frozenset((uid,))
    return frozenset((uid,)) | {
        member_uid
        for member_uid in gang.bound
        if member_uid in cache.pods and not cache.pods[member_uid].terminal
    }


def _running_pod(cache: Cache, tenant: Tenant, nominated: int) -> RunningPod:
    pod = tenant.pod
    gang = cache.gang_of(pod.uid)
    priority = cache.priority(pod.uid)
    return RunningPod(
        name=f"{pod.namespace}/{pod.name}",
        chips=tenant.chips & ~nominated,
        priority=_ENDING if pod.deleting else priority,
        start_time=_start_time(pod),
        gang=gang.job if gang else "",
    )


def _start_time(pod: NpuPod) -> float:
    try:
        return datetime.fromisoformat(pod.created).timestamp()
    except ValueError:
        return 0.0


def _uids_of_running(cache: Cache, running: Iterable[RunningPod]) -> frozenset[str]:
    """Return the UIDs of these running pods and of all bound pods of their jobs."""
    names = (running_pod.name.partition("/") for running_pod in running)
    pods = (cache.pod_named(namespace, name) for namespace, _, name in names)
    return frozenset().union(
        *(_uids_of_job(cache, pod.uid) for pod in pods if pod is not None)
    )


def _pods_to_evict(cache: Cache, uids: Iterable[str]) -> tuple[Victim, ...]:
    """Return the pods with these UIDs as victims, the most important first.

    Pods that are terminating already are left out.
    """
    order = sorted(uids, key=lambda uid: _importance(cache, uid))
    pods = [cache.pods[uid] for uid in order]
    return tuple(
        Victim(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        for pod in pods
        if not pod.deleting
    )


def _importance(cache: Cache, uid: str) -> tuple[bool, int, float, str, str]:
    """Return the sort key by which the most important victim comes first.

    Pods that are terminating come last. The others are ordered by priority from high to
    low, then by age from old to young.
    """
    pod = cache.pods[uid]
    priority = cache.priority(uid)
    return pod.deleting, -priority, _start_time(pod), pod.namespace, pod.name


def _freed_chips(cache: Cache, uid: str) -> int:
    """Return the mask of chips that a pod would release if it were evicted.

    Chips that the preemptor already frees for some pod or job do not count.
    """
    pod = cache.pods[uid]
    resource_state = cache.resource_state(pod.node, pod.shape.resource)
    if resource_state is None or uid not in resource_state.tenants:
        return 0
    return resource_state.tenants[uid].chips & ~_nominated(cache, resource_state)


def _fit_requests(
    cache: Cache, pod: NpuPod, node: str, gone_uids: Collection[str]
) -> bool:
    """Return whether a node has CPU, memory and a pod place for `pod` after evictions.

    Args:
        cache: Read only.
        pod: The pod to place.
        node: The node to place it on.
        gone_uids: UIDs of the pods that count as evicted.
    """
    view = overlay_cache(cache, (), gone_uids=gone_uids)
    remaining = capacity.free_on(view, node).minus(cache.requests.ask(pod.uid))
    return min(remaining) >= 0


def _overlay_without(cache: Cache, gone_uids: Collection[str]) -> CacheOverlay:
    """Return the cache as if these pods were evicted.

    Their chips count as free, and so do their CPU, memory and pod places.
    """
    freed: defaultdict[tuple[str, str], int] = defaultdict(int)
    for uid in gone_uids:
        pod = cache.pods[uid]
        freed[pod.node, pod.shape.resource] |= _freed_chips(cache, uid)
    states = [
        replace(state, free=state.free | mask & state.healthy)
        for (node, resource), mask in freed.items()
        if (state := cache.index.nodes(resource).get(node)) is not None
    ]
    return overlay_cache(cache, states, gone_uids=gone_uids)


def _nominated(
    cache: Cache, resource_state: ResourceState, *, but: Collection[str] = ()
) -> int:
    """Return the mask of chips of a node that are being freed for pods and jobs.

    Args:
        cache: Read only.
        resource_state: The chips of a node.
        but: UIDs of pods and keys of jobs for which they do not count.
    """
    return reservations.union(
        reservation
        for reservation in cache.reserved.get(resource_state.node_info.name, ())
        if reservation.claim is None
        and reservation.resource == resource_state.resource
        and reservation.kept_for not in but
    )
