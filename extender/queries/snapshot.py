"""Snapshot of the cache, in the JSON format that `python -m scheduler_core` reads.

The endpoints `/v1/plan` and `/v1/snapshot` use it. A pod in the snapshot has only the
fields that decisions on chips need: no labels, annotations or environment. On request,
numbers replace the names of pods and jobs. The same state of the cache always gives the
same bytes.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from extender.cache.cache import Cache
from extender.cache.node_state import ResourceState
from extender.cache.reservations import Beneficiary
from extender.gang.membership import AbsentMember
from extender.planning.topology import NetworkTopology, schema_of
from scheduler_core.node.chips import ids_of
from scheduler_core.snapshot.values import (
    Snapshot,
    SnapshotJob,
    SnapshotNode,
    SnapshotPod,
    SnapshotSwitches,
)
from scheduler_core.topology.leaves import Leaf, Network, Server


def take(cache: Cache, networks: NetworkTopology) -> Snapshot:
    """Return a snapshot of the cache: nodes, leaf switches, and pods that have chips.

    A pod is included if it has a node or a reservation, also if it does not exist yet.
    A job is included if one of its pods is. The snapshot also has the operator's
    settings for SuperPoDs and jobs. Nodes, pods and jobs have a fixed order.
    """
    titles = _titles(cache)
    nodes = tuple(_nodes(cache))
    pods = sorted(_pods(cache, titles), key=lambda pod: pod.name)
    present = {pod.job for pod in pods if pod.job}
    jobs = (
        SnapshotJob(name=titles[job], schema=schema_of(gang))
        for job, gang in cache.gangs.items()
        if titles[job] in present
    )
    rules = networks.rules
    return Snapshot(
        nodes=nodes,
        pods=tuple(pods),
        jobs=tuple(sorted(jobs, key=lambda job: job.name)),
        switches=_switches(networks.network(None), frozenset(cache.index.names)),
        superpod_size=rules.superpod_size,
        superpod_reserve=rules.superpod_reserve,
        profile=rules.profile,
    )


def without_names(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with numbers in place of the names of pods and jobs.

    The first pod becomes "pod-0", the first job "job-0".
    """
    jobs = {job.name: f"job-{number}" for number, job in enumerate(snapshot.jobs)}
    return replace(
        snapshot,
        jobs=tuple(replace(job, name=jobs[job.name]) for job in snapshot.jobs),
        pods=tuple(
            replace(pod, name=f"pod-{number}", job=jobs.get(pod.job, ""))
            for number, pod in enumerate(snapshot.pods)
        ),
    )


def without_nodes(snapshot: Snapshot, drained: frozenset[str]) -> Snapshot:
    """Return the snapshot without the nodes in `drained` and the pods on them."""
    switches = snapshot.switches
    pods = tuple(pod for pod in snapshot.pods if pod.node not in drained)
    nodes = tuple(node for node in snapshot.nodes if node.name not in drained)
    if switches is not None:
        names = {node.name for node in nodes}
        switches = replace(
            switches, leaves=tuple(_leaf(leaf, names) for leaf in switches.leaves)
        )
    return replace(snapshot, nodes=nodes, pods=pods, switches=switches)


def _nodes(cache: Cache) -> Iterator[SnapshotNode]:
    for state in cache.index:
        resource_state = cache.resource_state(state.name, state.product.resource)
        if resource_state is None:
            raise LookupError(f"{state.name!r} is in the index and not in the cache")
        report = resource_state.report
        installed = state.inventory
        listed = None
        if report is not None and not cache.self_maintains:
            listed = ids_of(report.available & installed)
        releasing = report.releasing if report else 0
        yield SnapshotNode(
            name=state.name,
            product=state.product,
            chips=ids_of(installed),
            unhealthy=ids_of(installed & ~state.healthy),
            network_unhealthy=ids_of(state.network_unhealthy & installed),
            held=ids_of(_held(resource_state) & installed),
            releasing=ids_of(releasing & installed),
            listed=listed,
            barred=state.barred,
            superpod=max(report.superpod, -1) if report else -1,
        )


def _held(resource_state: ResourceState) -> int:
    """Return the mask of a node's chips of one resource that Allocate gave to pods.

    Chips of a pod removed a short time ago are included too: the agent may hold them
    without having reported it yet.
    """
    held = resource_state.report.held if resource_state.report else 0
    for chips_left, _ in resource_state.unshown.values():
        held |= chips_left
    return held


def _places(cache: Cache) -> Iterator[tuple[Beneficiary, ResourceState, int]]:
    """Yield (UID, state of the pod's resource on its node, mask of the pod's chips).

    There is one entry for each pod on a node, and one for each reservation. A member
    without a pod stands in place of its UID.
    """
    for name in cache.index.names:
        node_info = cache.nodes[name]
        for resource_state in node_info.resources:
            for uid, tenant in resource_state.tenants.items():
                yield uid, resource_state, tenant.chips
        for reservation in cache.reserved.get(name, ()):
            reserved_state = node_info.find_resource(reservation.resource)
            if reservation.claim is not None and reserved_state is not None:
                yield reservation.kept_for, reserved_state, reservation.chips


def _resource(resource_state: ResourceState) -> str:
    """Return the resource that the snapshot states for a pod with chips of a node.

    "" if the node has fewer than two resources. The node's first resource if it no
    longer has the pod's.

    Args:
        resource_state: State of the pod's resource on its node. Its product is None if
            the node no longer has the resource.
    """
    known_resources = [
        line for line in resource_state.node_info.resources if line.product is not None
    ]
    if len(known_resources) <= 1:
        return ""
    return (
        resource_state.resource
        if resource_state.product is not None
        else known_resources[0].resource
    )


def _pods(cache: Cache, titles: Mapping[str, str]) -> Iterator[SnapshotPod]:
    for uid, resource_state, mask in _places(cache):
        installed = (
            resource_state.product.all_chips
            if resource_state.product is not None
            else 0
        )
        if isinstance(uid, AbsentMember):
            yield _absent_pod(uid, resource_state, mask & installed, titles)
            continue
        pod = cache.pods.get(uid)
        if pod is None:
            continue
        gang = cache.gang_of(uid)
        yield SnapshotPod(
            name=f"{pod.namespace}/{pod.name}",
            node=resource_state.node_info.name,
            chips=ids_of(mask & installed),
            resource=_resource(resource_state),
            phase=pod.phase if pod.node else "Pending",
            terminating=pod.deleting,
            priority=cache.priority(uid),
            job=titles[gang.job] if gang is not None else "",
            rank=gang.members[uid].membership.rank if gang is not None else None,
        )


def _absent_pod(
    member: AbsentMember,
    resource_state: ResourceState,
    mask: int,
    titles: Mapping[str, str],
) -> SnapshotPod:
    """Return a member whose pod is made later as a pod that has its kept chips."""
    _, namespace, *names = member.job.split("/")
    parts = [*names, member.role, *map(str, member.number)]
    return SnapshotPod(
        name=f"{namespace}/{'-'.join(filter(None, parts))}",
        node=resource_state.node_info.name,
        chips=ids_of(mask),
        resource=_resource(resource_state),
        phase="Pending",
        job=titles.get(member.job, ""),
    )


def _titles(cache: Cache) -> dict[str, str]:
    """Return {job: "namespace/name"} of all jobs in the cache.

    If jobs of two kinds have the same namespace and name, the value is
    "kind/namespace/name".
    """
    short = {job: job.partition("/")[2] for job in cache.gangs}
    name_counts = Counter(short.values())
    return {job: name if name_counts[name] == 1 else job for job, name in short.items()}


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
    """Return a copy of a leaf switch without network addresses.

    A server whose node is not in `names` gets the name "". It is not removed, so that
    the positions of the other servers do not change.
    """
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
