"""Leaf switches, what hangs on them, and what a job wants of them: the values.

In every order of leaves, equal ones keep the order of the ConfigMap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scheduler_core.answers import LeafUse


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


#: pods from which a job of the large-model schema may use several leaves
FILLER_BELOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What hangs on one port of a leaf."""

    #: the node; "" when there is none by that address
    node: str
    #: by which ranks are ordered within a leaf
    slice_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf switch; a server's place in the list is its position."""

    name: str
    servers: tuple[Server, ...]
    #: what jobs that use the spine make of it (2.0)
    use: LeafUse = LeafUse.IDLE
    #: false when more jobs share it than should (2.0)
    healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A running job with pods under leaves."""

    schema: Schema
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The leaves of a cluster, in the order of the ConfigMap."""

    leaves: tuple[Leaf, ...]
    version: Version = Version.ONE
    #: leaves that a job may share with other jobs that use the spine: 1 or 2 (2.0)
    shared_leaves: int = 2
    tenants: tuple[Tenant, ...] = ()

    @property
    def width(self) -> int:
        """Positions of a leaf."""
        return max((len(leaf.servers) for leaf in self.leaves), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The nodes of one leaf, or of one logical leaf, that a job gets."""

    #: (leaf, node) in the order of ranks
    nodes: tuple[tuple[str, str], ...]
    #: what the job makes of the leaf; as it was where the job lies whole under it
    use: LeafUse = LeafUse.IDLE
    healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job that asks for nodes under leaves."""

    network: Network
    schema: Schema
    pods: int
    #: {node that can take one pod: how good it is, smaller is better}
    slots: Mapping[str, tuple[str, int]]

    @property
    def is_filler(self) -> bool:
        """Whether it must lie under one leaf."""
        return self.schema is Schema.LARGE_MODEL and self.pods < FILLER_BELOW

    def free(self, leaf: Leaf) -> int:
        """How many slots a leaf has."""
        return sum(server.node in self.slots for server in leaf.servers)

    def some(self, leaf: Leaf, number: int) -> tuple[tuple[str, str], ...]:
        """The best slots of a leaf, in the order of ranks."""
        there = [server for server in leaf.servers if server.node in self.slots]
        best = sorted(there, key=lambda server: self.slots[server.node])[:number]
        return in_order((leaf.name, server) for server in best)


def in_order(servers: Iterable[tuple[str, Server]]) -> tuple[tuple[str, str], ...]:
    """Leaf and node of these servers, in the order of ranks."""
    by_slice = sorted(servers, key=lambda item: item[1].slice_id)
    return tuple((leaf, server.node) for leaf, server in by_slice)


def smallest(job: Request, leaves: Sequence[Leaf]) -> Leaf | None:
    """The leaf with the fewest slots that takes the whole job; of equals the later."""
    fitting = [leaf for leaf in leaves if job.free(leaf) >= job.pods]
    return min(reversed(fitting), key=job.free, default=None)


def roomiest_first(job: Request, leaves: Iterable[Leaf]) -> list[Leaf]:
    """The leaves by their slots, descending."""
    return sorted(leaves, key=job.free, reverse=True)


def take(
    job: Request, leaves: Iterable[tuple[Leaf, LeafUse, bool]]
) -> tuple[Part, ...]:
    """All slots of one leaf after the other; empty when there are too few."""
    parts = []
    missing = job.pods
    for leaf, use, healthy in leaves:
        number = min(missing, job.free(leaf))
        if number:
            nodes = job.some(leaf, number)
            parts.append(Part(nodes=nodes, use=use, healthy=healthy))
            missing -= number
    return () if missing else tuple(parts)
