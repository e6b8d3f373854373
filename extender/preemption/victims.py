"""Which pods have to go so that another pod, or a whole job, fits?

kube-scheduler's search for victims counts chips. Whether those that it has found free
a place by the rules of rings, `do_help` says. `for_pod` and `for_job` choose ourselves:
for a pod by the order of `scheduler_core.preemption.victims`, for a job the fewest
nodes, and of their pods none that could stay.

No victim is: a pod of the same priority or a higher one; a pod whose chips are not
confirmed, for it may have others; a pod of a job of which one may not go, since the
others would be left with chips and no job. A job of several goes as a whole. Pods that
are ending anyway are counted on and not evicted.

Pure, but for index and loads, which are as before afterwards.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from extender.cache.cache import Cache
from extender.cache.node_record import Record, Tenant
from extender.gang.gangs import Gang
from extender.planning import plan
from extender.planning.plan import World
from extender.preemption.attempt import Room, Victim
from extender.scheduling import capacity
from scheduler_core.node import chips
from scheduler_core.preemption import victims
from scheduler_core.preemption.victims import Preemptor, Running
from scheduler_core.wire.pods import NpuPod

#: Nodes whose pods are weighed against each other, those with the fewest to evict
#: first: each costs up to some milliseconds.
MOST_NODES = 64
#: Victims of a job for which it is tried whether they can stay.
_TRIES = 24
#: Pods that end are the first to be counted on.
_ENDING = -(1 << 31)


def do_help(cache: Cache, pod: NpuPod, node: str, uids: Iterable[str]) -> bool:
    """Whether `pod` could be placed on `node` once these pods have gone.

    Chips that are freed for another pod or job already are no place for it.

    Args:
        cache: What is known.
        pod: Asks for NPUs and has no node.
        node: Where the others are.
        uids: The others.
    """
    resource = pod.shape.resource
    state, record = cache.cluster.line(resource).get(node), cache.line(node, resource)
    if state is None or record is None or state.barred:
        return False
    row = state.row_for(resource)
    if row is None or node in cache.kept_from(pod.uid):
        return False
    own = {pod.uid, cache.gangs.job_of.get(pod.uid, "")}
    promised = _union(mask for owner, mask in record.kept.items() if owner not in own)
    tenants = record.tenants
    left = _union(tenants[uid].chips for uid in uids if uid in tenants)
    gone = left & ~promised
    there = state.free_for(row) | gone & state.usable(row)
    return bool(chips.choose(row, there, pod.total))


def for_pod(
    cache: Cache, pod: NpuPod, names: Sequence[str], spared: Collection[str] = ()
) -> Room | None:
    """Choose whom to evict for a pod that is a job by itself.

    Args:
        cache: What is known.
        pod: Asks for NPUs, and no node has room for it.
        names: The nodes where nothing but other pods is in its way.
        spared: UIDs of pods that may not go.

    Returns:
        None if nobody's going would help, or nobody has to go.
    """
    priority = cache.priorities.get(pod.uid, 0)
    closed = cache.kept_from(pod.uid) | cache.conflicts(pod)
    resource = pod.shape.resource
    records = _records(cache, resource, names, closed)
    lower = _lower(cache, records, priority, spared)
    wanted = Preemptor(
        wanted=resource, chips=pod.total, priority=priority, in_network=False
    )
    while lower:
        found = victims.preempt(wanted, cache.cluster, lower, names=lower)
        if found is None or not found.victims:
            return None
        uids = _uids(cache, found.victims)
        if _fits_besides(cache, pod, found.node, uids):
            return Room(
                owner=pod.uid,
                title=f"pod {pod.namespace}/{pod.name}",
                priority=priority,
                resource=resource,
                chips={found.node: chips.mask_of(found.place.chips)},
                victims=_victims(cache, uids),
            )
        del lower[found.node]
    return None


def for_job(
    cache: Cache,
    gang: Gang,
    names: Sequence[str],
    spared: Collection[str] = (),
    world: World = plan.PLAIN,
) -> Room | None:
    """Choose whom to evict for all pods of a job that have no node.

    Args:
        cache: What is known; as before afterwards.
        gang: All its pods exist, and it has no plan.
        names: The nodes where nothing but other pods is in the way of its pods.
        spared: UIDs of pods that may not go.
        world: What planning the job depends on besides.

    Returns:
        None if nobody's going would help, or nobody has to go.
    """
    asking = gang.unseated
    priority = min(gang.seats[uid].priority for uid in asking)
    closed = cache.kept_from(asking[0])
    resource = plan.resource_of(cache, gang)
    records = _records(cache, resource, names, closed)
    lower = _lower(cache, records, priority, spared)
    work = _Work(
        cache=cache,
        gang=gang,
        names=[name for name in names if name not in closed],
        world=world,
    )
    found = _fewest_nodes(work, lower)
    if found is None:
        return None
    uids, places = _without_idle(cache, resource, *found)
    for uid in sorted(uids, key=lambda uid: _importance(cache, uid))[:_TRIES]:
        fewer = uids - _of_job(cache, uid)
        fits = work.places(fewer) if uid in uids else None
        if fits is not None:
            uids, places = _without_idle(cache, resource, fewer, fits)
    return Room(
        owner=gang.job,
        title=gang.title,
        priority=priority,
        resource=resource,
        chips=places,
        victims=_victims(cache, uids),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A job that is planned as if pods had gone."""

    cache: Cache
    gang: Gang
    names: Sequence[str]
    world: World

    def places(self, gone: Collection[str]) -> dict[str, int] | None:
        """{node: chips for the job's pods} without these pods; None if it has none."""
        with _without(self.cache, gone):
            found = plan.plan(self.cache, self.gang, self.names, 0, self.world)
        if isinstance(found, str):
            return None
        places: dict[str, int] = {}
        for promise in found:
            places[promise.node] = places.get(promise.node, 0) | promise.chips
        return places


def _fewest_nodes(
    work: _Work, lower: Mapping[str, Sequence[Running]]
) -> tuple[frozenset[str], dict[str, int]] | None:
    """All pods of as few nodes as let the job fit, and where it goes then."""
    order = list(lower)

    def tried(count: int) -> tuple[frozenset[str], dict[str, int]] | None:
        running = [each for name in order[:count] for each in lower[name]]
        uids = _uids(work.cache, running)
        places = work.places(uids)
        return None if places is None else (uids, places)

    best = tried(len(order))
    if best is None or tried(0) is not None:
        return None
    least, most = 1, len(order)
    while least < most:
        middle = (least + most) // 2
        found = tried(middle)
        if found is None:
            least = middle + 1
        else:
            best, most = found, middle
    return best


def _without_idle(
    cache: Cache, resource: str, uids: Collection[str], places: dict[str, int]
) -> tuple[frozenset[str], dict[str, int]]:
    """Of these pods those whose chips are wanted, each with all of its job."""

    def at(pod: NpuPod) -> int:
        return places.get(pod.node, 0) if pod.shape.resource == resource else 0

    in_the_way = [uid for uid in uids if _chips(cache, uid) & at(cache.pods[uid])]
    return frozenset().union(*(_of_job(cache, uid) for uid in in_the_way)), places


def is_short(cache: Cache, pod: NpuPod, node: str) -> bool:
    """Whether a node lacks what the scheduler counts: chips, CPU, memory, or pods.

    If it does not, something else stands in the way there, of which we know nothing.
    """
    record = cache.line(node, pod.shape.resource)
    if record is None:
        return False
    asked = sum(tenant.pod.total for tenant in record.tenants.values())
    left = capacity.left_on(cache, node).minus(cache.loads.ask(pod.uid))
    return asked + pod.total > record.allocatable or min(left) < 0


def _records(
    cache: Cache, resource: str, names: Iterable[str], closed: Collection[str]
) -> Iterator[Record]:
    """What is known of the chips of these nodes that are not closed."""
    for name in names:
        record = cache.line(name, resource)
        if record is not None and name not in closed:
            yield record


def _lower(
    cache: Cache, records: Iterable[Record], priority: int, spared: Collection[str]
) -> dict[str, list[Running]]:
    """{node: its pods that may go}, the nodes with the least to lose first."""
    found = {}
    for record in records:
        kept = _union(record.kept.values())
        running = [
            _running(cache, tenant, kept)
            for tenant in record.tenants.values()
            if tenant.chips & ~kept and _may_go(cache, tenant, priority, spared)
        ]
        if running:
            found[record.host.name] = running
    order = sorted(found, key=lambda name: (_worth(found[name]), name))
    return {name: found[name] for name in order[:MOST_NODES]}


def _worth(running: Sequence[Running]) -> tuple[int, int]:
    return max(each.priority for each in running), len(running)


def _may_go(
    cache: Cache, tenant: Tenant, priority: int, spared: Collection[str]
) -> bool:
    pod = tenant.pod
    if cache.priorities.get(pod.uid, 0) >= priority or tenant.is_unconfirmed:
        return False
    return pod.deleting or all(
        cache.priorities.get(uid, 0) < priority and uid not in spared
        for uid in _of_job(cache, pod.uid)
    )


def _of_job(cache: Cache, uid: str) -> frozenset[str]:
    """The pod, and all pods of its job that have chips."""
    gang = cache.gangs.of(uid)
    if gang is None:
        return frozenset((uid,))
    return frozenset((uid,)) | {
        other
        for other in gang.seated
        if other in cache.pods and not cache.pods[other].terminal
    }


def _running(cache: Cache, tenant: Tenant, kept: int) -> Running:
    pod = tenant.pod
    gang = cache.gangs.of(pod.uid)
    priority = cache.priorities.get(pod.uid, 0)
    return Running(
        name=f"{pod.namespace}/{pod.name}",
        chips=tenant.chips & ~kept,
        priority=_ENDING if pod.deleting else priority,
        started=_started(pod),
        gang=gang.job if gang else "",
    )


def _started(pod: NpuPod) -> float:
    try:
        return datetime.fromisoformat(pod.created).timestamp()
    except ValueError:
        return 0.0


def _uids(cache: Cache, running: Iterable[Running]) -> frozenset[str]:
    """The pods, each with all of its job."""
    names = (each.name.partition("/") for each in running)
    uids = (cache.uids[namespace, name] for namespace, _, name in names)
    return frozenset().union(*(_of_job(cache, uid) for uid in uids))


def _victims(cache: Cache, uids: Iterable[str]) -> tuple[Victim, ...]:
    """Those that have to be evicted: not those that are ending already."""
    order = sorted(uids, key=lambda uid: _importance(cache, uid))
    pods = [cache.pods[uid] for uid in order]
    return tuple(
        Victim(uid=pod.uid, namespace=pod.namespace, name=pod.name)
        for pod in pods
        if not pod.deleting
    )


def _importance(cache: Cache, uid: str) -> tuple[bool, int, float, str, str]:
    """Pods that matter more first; those that end last."""
    pod = cache.pods[uid]
    priority = cache.priorities.get(uid, 0)
    return pod.deleting, -priority, _started(pod), pod.namespace, pod.name


def _chips(cache: Cache, uid: str) -> int:
    """What a pod would leave: the chips that nobody is promised already."""
    pod = cache.pods[uid]
    record = cache.line(pod.node, pod.shape.resource)
    if record is None or uid not in record.tenants:
        return 0
    return record.tenants[uid].chips & ~_union(record.kept.values())


def _fits_besides(cache: Cache, pod: NpuPod, node: str, gone: Iterable[str]) -> bool:
    """Whether CPU, memory and number of pods suffice once these have gone."""
    with _loads_without(cache, gone):
        left = capacity.left_on(cache, node).minus(cache.loads.ask(pod.uid))
    return min(left) >= 0


@contextmanager
def _without(cache: Cache, gone: Collection[str]) -> Iterator[None]:
    """Let index and loads show the nodes as if these pods had gone."""
    freed: dict[tuple[str, str], int] = {}
    for uid in gone:
        pod = cache.pods[uid]
        line = pod.node, pod.shape.resource
        freed[line] = freed.get(line, 0) | _chips(cache, uid)
    states = [
        replace(state, free=state.free | mask & state.healthy)
        for (node, resource), mask in freed.items()
        if (state := cache.cluster.line(resource).get(node)) is not None
    ]
    with plan.laid_over(cache, states), _loads_without(cache, gone):
        yield


@contextmanager
def _loads_without(cache: Cache, gone: Iterable[str]) -> Iterator[None]:
    dropped = [
        (uid, cache.pods[uid].node, cache.loads.ask(uid))
        for uid in gone
        if uid in cache.loads
    ]
    for uid, _, _ in dropped:
        cache.loads.drop(uid)
    try:
        yield
    finally:
        for uid, node, ask in dropped:
            cache.loads.put(uid, node, ask)


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
