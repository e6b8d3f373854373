"""Leaf switches, what hangs on them, and what a job wants of them: the values.

In every order of leaves, equal ones keep the order of the ConfigMap.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler_core.index.counts import Census, Groups, ones
from scheduler_core.node.decision import LeafUse


class Version(StrEnum):
    """How a cluster's switches are used; the value is the setting's word."""

    #: of the jobs on a leaf one uses the spine
    ONE = "1.0"
    #: as before, but on a limited number of leaves of a job several may
    TWO = "2.0"
    #: there is no spine
    SINGLE_LAYER = "single_layer"


class Schema(StrEnum):
    """What a job asks of the switches; the value is that of its label."""

    LARGE_MODEL = "large-model-schema"
    NORMAL = "normal-schema"


#: the job's label that says it
TOR_AFFINITY = "tor-affinity"
#: its value that says nothing, as does a missing label
_NOTHING = ("", "null")


def schema_of(label: str) -> Schema | None:
    """What a job's label asks for; None is nothing.

    Raises:
        ValueError: The label has a value that means nothing.
    """
    if label in _NOTHING:
        return None
    try:
        return Schema(label)
    except ValueError:
        known = ", ".join(Schema)
        text = f"label {TOR_AFFINITY}: expected one of {known}, null, found {label!r}"
        raise ValueError(text) from None


def asks_leaves(labels: Mapping[str, str]) -> bool:
    """Whether labels ask for switch affinity; of nonsense, whoever plans says so."""
    return labels.get(TOR_AFFINITY, "") not in _NOTHING


#: pods from which a job of the large-model schema may use several leaves
FILLER_BELOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What hangs on one port of a leaf."""

    #: the node; "" when there is none by that address
    node: str
    #: by which ranks are ordered within a leaf
    slice_id: int
    #: as the ConfigMap has it; "" is not known
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf switch; a server's place in the list is its position."""

    name: str
    servers: tuple[Server, ...]
    #: what jobs that use the spine make of it (2.0)
    use: LeafUse = LeafUse.IDLE
    #: false when more jobs share it than should (2.0)
    healthy: bool = True
    #: the switch's own, as the ConfigMap has it; "" is not known
    address: str = ""
    #: the nodes of the servers
    nodes: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what every decision asks for, once."""
        nodes = tuple([server.node for server in self.servers])
        object.__setattr__(self, "nodes", nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A running job with pods under leaves."""

    schema: Schema
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """The leaves where jobs run that matter to others, as masks of their numbers."""

    #: a job uses the spine from there
    spanned: int = 0
    #: a large-model job does
    taken: int = 0
    #: a large-model job runs there, whether it uses the spine or not
    large: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The leaves of a cluster, in the order of the ConfigMap.

    Cost:
        To make one, a step for each leaf and, with tenants, for each node; so that no
        decision needs them.
    """

    leaves: tuple[Leaf, ...]
    version: Version = Version.ONE
    #: leaves that a job may share with other jobs that use the spine: 1 or 2 (2.0)
    shared_leaves: int = 2
    tenants: tuple[Tenant, ...] = ()
    #: positions of a leaf
    width: int = field(init=False, repr=False, compare=False)
    #: the nodes of each leaf, by position
    groups: Groups = field(init=False, repr=False, compare=False)
    crossings: Crossings = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out what every decision asks for, once."""
        groups = tuple([leaf.nodes for leaf in self.leaves])
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "width", max(map(len, groups), default=0))
        crossings = _crossings(groups, self.tenants) if self.tenants else Crossings()
        object.__setattr__(self, "crossings", crossings)


def _crossings(groups: Groups, tenants: Iterable[Tenant]) -> Crossings:
    leaf_of: dict[str, int] = {}
    for number in range(len(groups) - 1, -1, -1):  # named twice: where it is first
        leaf_of.update(dict.fromkeys(groups[number], number))
    leaf_of.pop("", None)
    spanned = taken = large = 0
    for tenant in tenants:
        leaves = set(map(leaf_of.get, tenant.nodes))
        here = sum(1 << leaf for leaf in leaves if leaf is not None)
        if len(leaves) > 1:
            spanned |= here
        if tenant.schema is Schema.LARGE_MODEL:
            large |= here
            if len(leaves) > 1:
                taken |= here
    return Crossings(spanned=spanned, taken=taken, large=large)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The nodes of one leaf, or of one logical leaf, that a job gets."""

    #: (leaf, node) in the order of ranks
    nodes: tuple[tuple[str, str], ...]
    #: what the job makes of the leaf; as it was where the job lies whole under it
    use: LeafUse = LeafUse.IDLE
    healthy: bool = True


#: how good a node is for one pod of a job, smaller is better
Rank = Callable[[str], tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job that asks for nodes under leaves.

    Leaves are meant by their numbers, from 0 in the order of the ConfigMap; sets of
    them are masks.
    """

    network: Network
    schema: Schema
    pods: int
    #: the nodes under each leaf that can take one pod
    slots: Census
    #: of those nodes
    rank: Rank

    @property
    def is_filler(self) -> bool:
        """Whether it must lie under one leaf."""
        return self.schema is Schema.LARGE_MODEL and self.pods < FILLER_BELOW

    @property
    def fitting(self) -> int:
        """The leaves under which it fits whole."""
        return sum(self.slots.levels[self.pods :])

    def free(self, leaf: int) -> int:
        """How many slots a leaf has."""
        return self.slots.slots[leaf].bit_count()

    def some(self, number: int, count: int) -> tuple[tuple[str, str], ...]:
        """The best slots of a leaf, in the order of ranks."""
        leaf = self.network.leaves[number]
        there = [leaf.servers[position] for position in ones(self.slots.slots[number])]
        best = sorted(there, key=lambda server: self.rank(server.node))[:count]
        return in_order((leaf.name, server) for server in best)


def in_order(servers: Iterable[tuple[str, Server]]) -> tuple[tuple[str, str], ...]:
    """Leaf and node of these servers, in the order of ranks."""
    by_slice = sorted(servers, key=lambda item: item[1].slice_id)
    return tuple((leaf, server.node) for leaf, server in by_slice)


def smallest(job: Request, leaves: int) -> int | None:
    """The leaf with the fewest slots that takes the whole job; of equals the later."""
    for level in job.slots.levels[job.pods :]:
        if here := level & leaves:
            return here.bit_length() - 1
    return None


def roomiest_first(job: Request, *leaves: int) -> Iterator[int]:
    """The leaves that have slots, by their number, descending.

    Args:
        job: Whose slots.
        leaves: Which leaves; of equals, those of the set that is named first.
    """
    for level in job.slots.levels[:0:-1]:
        for some in leaves:
            yield from ones(level & some)


def take(job: Request, leaves: Iterable[tuple[int, LeafUse, bool]]) -> tuple[Part, ...]:
    """All slots of one leaf after the other; empty when there are too few."""
    parts = []
    missing = job.pods
    for leaf, use, healthy in leaves:
        number = min(missing, job.free(leaf))
        parts.append(Part(nodes=job.some(leaf, number), use=use, healthy=healthy))
        missing -= number
        if not missing:
            return tuple(parts)
    return ()
