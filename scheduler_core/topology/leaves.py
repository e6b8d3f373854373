"""Values about leaf switches: servers, jobs under them, and requests of jobs.

In every order of leaves, equal ones keep the order of the ConfigMap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler_core.index.counts import Census, Groups, set_bits
from scheduler_core.node.decision import LeafUse


class Version(StrEnum):
    """Version of switch affinity of a cluster; the value is the setting's word."""

    #: at most one of the jobs on a leaf uses the spine
    ONE = "1.0"
    #: as 1.0, but a job may share a limited number of its leaves with such jobs
    TWO = "2.0"
    #: the network has no spine
    SINGLE_LAYER = "single_layer"


class Schema(StrEnum):
    """Request of a job to the switches; the value is that of its label."""

    LARGE_MODEL = "large-model-schema"
    NORMAL = "normal-schema"


#: label of a job with its schema
TOR_AFFINITY = "tor-affinity"
#: values of the label without a request; "" is a missing label
_NO_REQUEST = ("", "null")


def schema_of(label: str) -> Schema | None:
    """Return the schema that a job's label asks for; None for no request.

    Raises:
        ValueError: The label has an unknown value.
    """
    if label in _NO_REQUEST:
        return None
    try:
        return Schema(label)
    except ValueError:
        schemas = ", ".join(Schema)
        text = f"label {TOR_AFFINITY}: expected one of {schemas}, null, found {label!r}"
        raise ValueError(text) from None


def asks_leaves(labels: Mapping[str, str]) -> bool:
    """Return whether labels ask for switch affinity, even with an unknown value.

    `schema_of` rejects unknown values later, with a message for the job.
    """
    return labels.get(TOR_AFFINITY, "") not in _NO_REQUEST


#: smallest number of pods with which a large-model job may use several leaves
FILLER_BELOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Server on one port of a leaf."""

    #: name of the node; "" when no node has that address
    node: str
    #: sort key of ranks within a leaf
    slice_id: int
    #: address in the ConfigMap; "" is unknown
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf switch; the index of a server in `servers` is its position."""

    name: str
    servers: tuple[Server, ...]
    #: use of the leaf by jobs that cross the spine (2.0)
    use: LeafUse = LeafUse.IDLE
    #: false when more jobs share the leaf than should (2.0)
    healthy: bool = True
    #: address of the switch in the ConfigMap; "" is unknown
    address: str = ""
    #: [position] = name of the node
    nodes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the derived fields once, because every decision reads them."""
        nodes = tuple([server.node for server in self.servers])
        object.__setattr__(self, "nodes", nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Running job with pods under leaves."""

    schema: Schema
    #: names of the nodes of its pods
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """Leaves with running jobs that limit other jobs, as masks of their numbers."""

    #: leaves from which a job uses the spine
    spine: int = 0
    #: leaves from which a large-model job uses the spine
    large_model_spine: int = 0
    #: leaves with a large-model job, whether it uses the spine or not
    large_model: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Leaves of a cluster in the order of the ConfigMap, and the jobs under them.

    Cost:
        To create: a step for each leaf and, with tenants, for each node. Decisions
        then need no such steps.
    """

    leaves: tuple[Leaf, ...]
    version: Version = Version.ONE
    #: number of leaves, 1 or 2, that a job may share with jobs using the spine (2.0)
    shared_leaves: int = 2
    tenants: tuple[Tenant, ...] = ()
    #: largest number of positions of a leaf
    width: int = field(init=False, repr=False, compare=False)
    #: [leaf][position] = name of the node
    groups: Groups = field(init=False, repr=False, compare=False)
    crossings: Crossings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the derived fields once, because every decision reads them."""
        groups = tuple([leaf.nodes for leaf in self.leaves])
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "width", max(map(len, groups), default=0))
        crossings = _crossings(groups, self.tenants) if self.tenants else Crossings()
        object.__setattr__(self, "crossings", crossings)


def _crossings(groups: Groups, tenants: Iterable[Tenant]) -> Crossings:
    leaf_of: dict[str, int] = {}
    # From the last leaf to the first: a node that is named twice has the first leaf.
    for number in range(len(groups) - 1, -1, -1):
        leaf_of.update(dict.fromkeys(groups[number], number))
    leaf_of.pop("", None)
    spine = large_model_spine = large_model = 0
    for tenant in tenants:
        leaves = set(map(leaf_of.get, tenant.nodes))
        mask = sum(1 << leaf for leaf in leaves if leaf is not None)
        if len(leaves) > 1:
            spine |= mask
        if tenant.schema is Schema.LARGE_MODEL:
            large_model |= mask
            if len(leaves) > 1:
                large_model_spine |= mask
    return Crossings(
        spine=spine, large_model_spine=large_model_spine, large_model=large_model
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Nodes that a job gets under one leaf or one logical leaf."""

    #: (leaf, node) in the order of ranks
    nodes: tuple[tuple[str, str], ...]
    #: use of the leaf with the job; unchanged when the job is under this leaf only
    use: LeafUse = LeafUse.IDLE
    healthy: bool = True


#: node -> key for one pod of a job, smaller is better
Rank = Callable[[str], tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Job that asks for nodes under leaves.

    Leaves are numbered from 0 in the order of the ConfigMap; sets of leaves are masks
    of these numbers.
    """

    network: Network
    schema: Schema
    #: number of pods, 1 or more
    pods: int
    #: nodes under each leaf that can take one pod
    slots: Census
    #: rank of these nodes
    rank: Rank

    @property
    def is_filler(self) -> bool:
        """Whether the job must be under one leaf."""
        return self.schema is Schema.LARGE_MODEL and self.pods < FILLER_BELOW

    @property
    def fitting(self) -> int:
        """Mask of the leaves with slots for the whole job."""
        return sum(self.slots.levels[self.pods :])

    @property
    def no_leaf(self) -> str:
        """Sentence for a job that must be under one leaf and fits under none."""
        most = max((slots.bit_count() for slots in self.slots.slots), default=0)
        return (
            f"no leaf switch has {self.pods} nodes that can take a pod: "
            f"at most {most} of one can"
        )

    def count_slots(self, leaves: int) -> int:
        """Return the number of slots of all leaves of a mask."""
        return sum(map(self.free_slots, set_bits(leaves)))

    def describe_shortage(self, leaves: int) -> str:
        """Return a sentence for a job that needs more slots than it may use.

        Args:
            leaves: Mask of the leaves that the job may use.
        """
        usable = self.count_slots(leaves)
        number = "is 1 such node" if usable == 1 else f"are {usable} such nodes"
        text = (
            f"no {self.pods} nodes under leaf switches can take a pod: there {number}"
        )
        closed = self.slots.total - usable
        return f"{text}, and {closed} under leaves of other jobs" if closed else text

    def free_slots(self, leaf: int) -> int:
        """Return the number of slots of a leaf."""
        return self.slots.slots[leaf].bit_count()

    def best_nodes(self, number: int, count: int) -> tuple[tuple[str, str], ...]:
        """Return (leaf, node) of the `count` best slots of a leaf, by slice id.

        Args:
            number: Number of the leaf.
            count: Number of slots; the leaf may have fewer.
        """
        leaf = self.network.leaves[number]
        servers = [
            leaf.servers[position] for position in set_bits(self.slots.slots[number])
        ]
        best = sorted(servers, key=lambda server: self.rank(server.node))[:count]
        return sort_by_slice((leaf.name, server) for server in best)


def sort_by_slice(servers: Iterable[tuple[str, Server]]) -> tuple[tuple[str, str], ...]:
    """Return (leaf, node) of these servers in the order of ranks, by slice id."""
    by_slice = sorted(servers, key=lambda item: item[1].slice_id)
    return tuple((leaf, server.node) for leaf, server in by_slice)


def smallest_fitting_leaf(job: Request, leaves: int) -> int | None:
    """Return the leaf with the fewest slots for the whole job; of equals the last.

    Returns:
        The number of the leaf; None when the job fits under none of `leaves`.
    """
    for level in job.slots.levels[job.pods :]:
        if candidates := level & leaves:
            return candidates.bit_length() - 1
    return None


def leaves_by_free_slots(job: Request, *leaves: int) -> Iterator[int]:
    """Yield the leaves that have slots, those with the most slots first.

    Args:
        job: Job with the slots.
        leaves: Masks of leaves; of equal leaves those of an earlier mask come first.
    """
    for level in job.slots.levels[:0:-1]:
        for mask in leaves:
            yield from set_bits(level & mask)


def take_leaves(
    job: Request, leaves: Iterable[tuple[int, LeafUse, bool]]
) -> tuple[Part, ...]:
    """Return parts that use all slots of each leaf in turn; () when they are too few.

    Args:
        job: Job with the slots.
        leaves: (number, use with the job, whether healthy with the job) in order.
    """
    parts = []
    missing = job.pods
    for leaf, use, healthy in leaves:
        number = min(missing, job.free_slots(leaf))
        parts.append(Part(nodes=job.best_nodes(leaf, number), use=use, healthy=healthy))
        missing -= number
        if not missing:
            return tuple(parts)
    return ()
