"""What a snapshot says, as values, and what decisions take of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import free
from scheduler_core.node.chips import mask_of
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import Leaf, Network, Schema, Tenant, Version

#: of the snapshot file and of the job file
VERSION = 1

_NONE: Mapping[str, str] = MappingProxyType(dict[str, str]())


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNode:
    """One node; one that has chips of several resources is there once for each.

    Chips are physical ids, ascending.
    """

    name: str
    product: Product
    chips: tuple[int, ...]
    unhealthy: tuple[int, ...] = ()
    #: healthy themselves, but not their network
    network_unhealthy: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    releasing: tuple[int, ...] = ()
    #: what the node itself lists as free; None when the scheduler keeps the books
    listed: tuple[int, ...] | None = None
    #: why nothing goes there whatever is free, or None
    barred: Reason | None = None
    #: id of its physical SuperPoD, or -1
    superpod: int = -1
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPod:
    """One pod that is bound."""

    #: "namespace/name"
    name: str
    node: str
    #: all that its annotations name, physical ids, ascending
    chips: tuple[int, ...]
    #: of which resource these are, on a node that has several; "" is its node's
    resource: str = ""
    phase: str = "Running"
    #: whether it has been told to end
    terminating: bool = False
    #: of its priority class; who asks for less may be ended for who asks for more
    priority: int = 0
    #: when it started, in seconds since 1970; None is not yet
    started_s: int | None = None
    #: the job that it is one pod of, one of the snapshot's; "" is itself
    job: str = ""
    #: its number in that job; None is not said
    rank: int | None = None
    #: the PodDisruptionBudgets that cover it, of the snapshot's
    budgets: tuple[str, ...] = ()

    @property
    def terminal(self) -> bool:
        """Whether it has ended for good, so that its chips are free."""
        return self.phase in {"Failed", "Succeeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotJob:
    """A job of several pods that is there."""

    #: "namespace/name"
    name: str
    #: pods with which it can go on; with fewer it is broken. None is all it has.
    min_available: int | None = None
    #: what it asks of the leaf switches, or None
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBudget:
    """A PodDisruptionBudget."""

    #: "namespace/name"
    name: str
    #: how many of its pods may still be ended (`status.disruptionsAllowed`)
    allowed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSwitches:
    """The leaf switches as the cluster describes them, and how they are used."""

    leaves: tuple[Leaf, ...]
    version: Version = Version.ONE
    #: leaves that a job may share with others that use the spine: 1 or 2 (2.0)
    shared_leaves: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster at one moment."""

    nodes: tuple[SnapshotNode, ...] = ()
    pods: tuple[SnapshotPod, ...] = ()
    jobs: tuple[SnapshotJob, ...] = ()
    budgets: tuple[SnapshotBudget, ...] = ()
    #: None when the cluster has not described them
    switches: SnapshotSwitches | None = None
    #: nodes of a physical SuperPoD at most, and those of it kept free where possible
    superpod_size: int = 48
    superpod_reserve: int = 2
    #: how strict the rules over whole jobs are
    profile: Profile = Profile.SEED


def cluster_of(snapshot: Snapshot) -> Cluster:
    """The index of a snapshot's nodes."""
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
    """The pods that have chips of a resource; those of other nodes do not matter."""
    return (pod for pod in snapshot.pods if pod.resource in ("", resource))


def network_of(snapshot: Snapshot) -> Network | None:
    """The leaf switches with the jobs that run under them; None when not described."""
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
    """Which node is in which SuperPoD; None when no node says it."""
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
