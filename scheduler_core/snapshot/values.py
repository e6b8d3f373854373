"""Values of a snapshot, and the cluster, network and SuperPoDs that decisions take."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import free
from scheduler_core.node.chips import mask_of
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import Leaf, Network, Schema, Tenant, Version

#: version of the snapshot file and of the job file
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNode:
    """Node with its chips of one resource; a node with several resources has several.

    Chips are physical ids, ascending.
    """

    name: str
    product: Product
    chips: tuple[int, ...]
    unhealthy: tuple[int, ...] = ()
    #: chips that are healthy, but whose network is not
    network_unhealthy: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    releasing: tuple[int, ...] = ()
    #: chips that the node lists as free; None when only the scheduler counts them
    listed: tuple[int, ...] | None = None
    #: reason that bars the node for every pod, or None
    barred: Reason | None = None
    #: id of its physical SuperPoD, or -1
    superpod: int = -1
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPod:
    """Pod that is bound to a node."""

    #: "namespace/name"
    name: str
    node: str
    #: physical ids of the chips that the pod's annotations name, ascending
    chips: tuple[int, ...]
    #: resource of the chips, on a node with several resources; else ""
    resource: str = ""
    phase: str = "Running"
    #: whether the pod has a deletion timestamp
    terminating: bool = False
    #: priority of the pod; pods of higher priority may evict it
    priority: int = 0
    #: start in seconds since 1970; None before the start
    started_s: int | None = None
    #: name of the pod's job in the snapshot; "" for a pod by itself
    job: str = ""
    #: number of the pod in its job, or None
    rank: int | None = None
    #: names of the snapshot's PodDisruptionBudgets that cover the pod
    budgets: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended, so that its chips are free."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """Existing job of several pods."""

    #: "namespace/name"
    name: str
    #: least number of pods with which the job can run; None is all its pods
    min_available: int | None = None
    #: switch affinity of the job, or None
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBudget:
    """A PodDisruptionBudget."""

    #: "namespace/name"
    name: str
    #: number of its pods that may still be evicted (`status.disruptionsAllowed`)
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSwitches:
    """Leaf switches of the cluster, and their use by jobs."""

    leaves: tuple[Leaf, ...]
    version: Version = Version.ONE
    #: number of leaves that a job may share with other jobs on the spine: 1 or 2 (2.0)
    shared_leaves: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of a cluster at one moment."""

    nodes: tuple[SnapshotNode, ...] = ()
    pods: tuple[SnapshotPod, ...] = ()
    jobs: tuple[SnapshotJob, ...] = ()
    budgets: tuple[SnapshotBudget, ...] = ()
    #: None when the cluster has not described its switches
    switches: SnapshotSwitches | None = None
    #: largest number of nodes of a physical SuperPoD, and nodes to keep free in each
    superpod_size: int = 48
    superpod_reserve: int = 2
    #: strictness of the rules over whole jobs
    profile: Profile = Profile.SEED


def cluster_of(snapshot: Snapshot) -> Cluster:
    """Return the index of a snapshot's nodes."""
    claimed: dict[tuple[str, str], int] = {}
    for pod in snapshot.pods:
        if not pod.terminal:
            line = pod.node, pod.resource
            claimed[line] = claimed.get(line, 0) | mask_of(pod.chips)
    return Cluster(
        _state(
            node,
            claimed.get((node.name, ""), 0)
            | claimed.get((node.name, node.product.resource), 0),
        )
        for node in snapshot.nodes
    )


def pods_of(snapshot: Snapshot, resource: str) -> Iterator[SnapshotPod]:
    """Return the pods with chips of a resource, and those that name no resource."""
    return (pod for pod in snapshot.pods if pod.resource in ("", resource))


def network_of(snapshot: Snapshot) -> Network | None:
    """Return the leaf switches with their jobs; None when they are not described."""
    switches = snapshot.switches
    if switches is None:
        return None
    nodes: dict[str, set[str]] = {}
    for pod in snapshot.pods:
        if pod.job and not pod.terminal:
            nodes.setdefault(pod.job, set()).add(pod.node)
    return Network(
        leaves=switches.leaves,
        version=switches.version,
        shared_leaves=switches.shared_leaves,
        tenants=tuple(
            Tenant(schema=job.schema, nodes=frozenset(nodes[job.name]))
            for job in snapshot.jobs
            if job.schema is not None and job.name in nodes
        ),
    )


def superpods_of(snapshot: Snapshot) -> SuperPods | None:
    """Return the nodes by SuperPoD; None when no node has a SuperPoD."""
    of_node = {
        node.name: node.superpod for node in snapshot.nodes if node.superpod >= 0
    }
    if not of_node:
        return None
    return SuperPods(of_node=of_node, reserve=snapshot.superpod_reserve)


def _state(node: SnapshotNode, claimed: int) -> NodeState:
    inventory = mask_of(node.chips)
    healthy = inventory & ~mask_of(node.unhealthy)
    return NodeState(
        name=node.name,
        product=node.product,
        inventory=inventory,
        healthy=healthy,
        free=free.free_chips(
            healthy=healthy,
            claimed=claimed,
            held=mask_of(node.held),
            releasing=mask_of(node.releasing),
            listed=None if node.listed is None else mask_of(node.listed),
        ),
        network_unhealthy=mask_of(node.network_unhealthy),
        taken=claimed | mask_of((*node.held, *node.releasing)),
        barred=node.barred,
    )
