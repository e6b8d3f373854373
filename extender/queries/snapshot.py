"""The cluster as it is now, in the form that files have: for what-if, and for replay.

Of pods only what decides about chips is in it, no labels, annotations or environment;
their names can be left out. The same state always gives the same bytes.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.node_record import Record
from extender.planning.topology import Networks, schema_of
from scheduler_core.node.chips import ids_of
from scheduler_core.snapshot.document import (
    Snapshot,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from scheduler_core.topology.leaves import Leaf, Network, Server


def of_now(cache: Cache, networks: Networks) -> Snapshot:
    """All that decisions depend on, in an order of its own."""
    titles = _titles(cache)
    nodes = tuple(_nodes(cache))
    pods = sorted(_pods(cache, titles), key=lambda pod: pod.name)
    present = {pod.job for pod in pods if pod.job}
    jobs = (
        SnapshotJob(name=titles[job], schema=schema_of(gang))
        for job, gang in cache.gangs.jobs.items()
        if titles[job] in present
    )
    rules = networks.rules
    return Snapshot(
        nodes=nodes,
        pods=tuple(pods),
        jobs=tuple(sorted(jobs, key=lambda job: job.name)),
        switches=_switches(networks.network(None), frozenset(cache.cluster.names)),
        superpod_size=rules.superpod_size,
        superpod_reserve=rules.superpod_reserve,
        profile=rules.profile,
    )


def without_names(of: Snapshot) -> Snapshot:
    """The same, with numbers for the names of pods and jobs."""
    jobs = {job.name: f"job-{at}" for at, job in enumerate(of.jobs)}
    return replace(
        of,
        jobs=tuple(replace(job, name=jobs[job.name]) for job in of.jobs),
        pods=tuple(
            replace(pod, name=f"pod-{at}", job=jobs.get(pod.job, ""))
            for at, pod in enumerate(of.pods)
        ),
    )


def without_nodes(of: Snapshot, drained: frozenset[str]) -> Snapshot:
    """The same once these nodes, and the pods on them, are gone."""
    switches = of.switches
    pods = tuple(pod for pod in of.pods if pod.node not in drained)
    nodes = tuple(node for node in of.nodes if node.name not in drained)
    if switches is not None:
        names = {node.name for node in nodes}
        switches = replace(
            switches, leaves=tuple(_leaf(leaf, names) for leaf in switches.leaves)
        )
    return replace(of, nodes=nodes, pods=pods, switches=switches)


def _nodes(cache: Cache) -> Iterator[SnapshotNode]:
    for state in cache.cluster:
        record = cache.record(state.name, state.product.resource)
        report = record.report
        there = state.inventory
        listed = None
        if report is not None and not cache.self_maintains:
            listed = ids_of(report.available & there)
        releasing = report.releasing if report else 0
        yield SnapshotNode(
            name=state.name,
            product=state.product,
            chips=ids_of(there),
            unhealthy=ids_of(there & ~state.healthy),
            network_unhealthy=ids_of(state.network_unhealthy & there),
            held=ids_of(_held(record) & there),
            releasing=ids_of(releasing & there),
            listed=listed,
            barred=state.barred,
            superpod=max(report.superpod, -1) if report else -1,
        )


def _held(record: Record) -> int:
    """Chips that are held, or were of pods that have just gone, as a mask."""
    held = record.report.held if record.report else 0
    for chips_left, _ in record.unshown.values():
        held |= chips_left
    return held


def _places(cache: Cache) -> Iterator[tuple[str, Record, int]]:
    """UID, line of a node and chips of each pod that lives there, or is to."""
    for name in cache.cluster.names:
        for record in cache.host(name).lines:
            for uid, tenant in record.tenants.items():
                yield uid, record, tenant.chips
            for uid, promise in record.assumed.items():
                yield uid, record, promise.chips


def _resource(record: Record) -> str:
    """Of which resource chips are, where their node has several.

    Of one that the node has no more a pod has no chips, and any other will do.
    """
    known = [line for line in record.host.lines if line.product is not None]
    if len(known) <= 1:
        return ""
    return record.resource if record.product is not None else known[0].resource


def _pods(cache: Cache, titles: Mapping[str, str]) -> Iterator[SnapshotPod]:
    for uid, record, mask in _places(cache):
        pod = cache.pods.get(uid)
        if pod is None:
            continue
        gang = cache.gangs.of(uid)
        there = record.product.all_chips if record.product is not None else 0
        yield SnapshotPod(
            name=f"{pod.namespace}/{pod.name}",
            node=record.host.name,
            chips=ids_of(mask & there),
            resource=_resource(record),
            phase=pod.phase if pod.node else "Pending",
            terminating=pod.deleting,
            priority=cache.priorities.get(uid, 0),
            job=titles[gang.job] if gang is not None else "",
            rank=gang.seats[uid].membership.rank if gang is not None else None,
        )


def _titles(cache: Cache) -> dict[str, str]:
    """{job: "namespace/name"}, with its kind where two of different kinds share one."""
    short = {job: job.partition("/")[2] for job in cache.gangs.jobs}
    often = Counter(short.values())
    return {job: name if often[name] == 1 else job for job, name in short.items()}


def _switches(
    network: Network | None, names: Container[str]
) -> SnapshotSwitches | None:
    if network is None:
        return None
    return SnapshotSwitches(
        leaves=tuple(_leaf(leaf, names) for leaf in network.leaves),
        version=network.version,
        shared_leaves=network.shared_leaves,
    )


def _leaf(leaf: Leaf, names: Container[str]) -> Leaf:
    """A leaf as files have it: only nodes that are in the snapshot have a name."""
    return replace(
        leaf,
        address="",
        servers=tuple(
            Server(
                node=server.node if server.node in names else "",
                slice_id=server.slice_id,
            )
            for server in leaf.servers
        ),
    )
