"""What a decision answers: a place with its reason, or why there is none."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.products.columns import Product, Way

#: sentences that are remembered
_REMEMBERED = 1 << 14


class LeafUse(IntEnum):
    """What jobs that use the spine make of a leaf; the value is the annotation's."""

    IDLE = 0
    SHARED = 1
    EXCLUSIVE = 2


class Placement(NamedTuple):
    """A node, chips of it, and the reason for the choice in a sentence.

    A tuple, because one is made for each decision and each pod of a job: making a
    frozen dataclass took a third of a decision's time.
    """

    node: str
    #: physical ids, ascending
    chips: tuple[int, ...]
    reason: str
    #: of a job with several pods: which of them this is; "" for a pod by itself
    pod: str = ""
    #: its number in the job, from 0; 0 for a pod by itself
    rank: int = 0
    #: the leaf switch, where the job asked for switch affinity; else ""
    leaf: str = ""
    #: what the job makes of that leaf
    leaf_use: LeafUse = LeafUse.IDLE
    #: whether no more jobs share that leaf than should
    leaf_healthy: bool = True
    #: id of the physical SuperPoD, for a job of SuperPoDs; else -1
    superpod: int = -1
    #: number of the logical SuperPoD in the job, from 0; else -1
    superpod_rank: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why no node serves."""

    #: (text, nodes of which it is said), the most frequent first, then by text
    reasons: tuple[tuple[str, int], ...]
    #: what holds for the job as a whole; "" for a pod by itself
    job: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""
        return sum(nodes for _, nodes in self.reasons)

    @property
    def text(self) -> str:
        """All reasons in a line: "48 no HCCS ring has 4 free chips, 12 …"."""
        of_nodes = ", ".join(f"{nodes} {text}" for text, nodes in self.reasons)
        said = [part for part in (self.job, of_nodes) if part]
        return ": ".join(said) if said else "no node to look at"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlacement:
    """Where all pods of a job go."""

    #: by rank
    pods: tuple[Placement, ...]


def sentence(row: Product, free: int, chosen: int, healthy: int, of: int) -> str:
    """Why `chosen` of `free`, on a node with so many healthy chips of so many."""
    if row.group_preference:
        return _where(_share(row, free, chosen), healthy, of)
    return _where(_of(chosen.bit_count(), free.bit_count()), healthy, of)


def _where(share: str, healthy: int, of: int) -> str:
    those = "all" if healthy == of else f"{healthy} of"
    return f"{share}, on a node with {those} {of} chips healthy"


@lru_cache(maxsize=_REMEMBERED)
def _share(row: Product, free: int, chosen: int) -> str:
    """What was given of what."""
    count, way = chosen.bit_count(), _way(row, chosen)
    if way is Way.GROUPS:
        return _share_of_groups(row, free, chosen)
    if way is Way.HALVES:
        return f"{count // 2} chips of each {row.group_kind.value}"
    if way is Way.PAIRS:
        group = row.group_kind.value
        return f"{count // 2} chips of each {group}, at matching positions"
    return _of(count, free.bit_count())


def _way(row: Product, chosen: int) -> Way:
    """The way in which these chips lie, the first that is true of them."""
    ways = row.ways[chosen.bit_count()]
    if len(ways) == 1:
        return ways[0]
    return next(way for way in ways if LAYOUTS[way].admits(row, chosen))


def _share_of_groups(row: Product, free: int, chosen: int) -> str:
    count, kind = chosen.bit_count(), row.group_kind
    first = row.groups[((chosen & -chosen).bit_length() - 1) // row.group_size]
    if not chosen & ~first:
        share = f"{_of(count, (free & first).bit_count())} of one {kind.value}"
        return f"{share} ({(free & ~first).bit_count()} more free on the node)"
    whole, rest = divmod(count, row.group_size)
    if not rest:
        return kind.whole(whole)
    home = sum(group for group in row.groups if group & chosen)
    more = _of(rest, (free & home).bit_count() - whole * row.group_size)
    return f"{kind.whole(whole)} and {more} of one more"


def _of(count: int, left: int) -> str:
    return (
        f"the last {count} free"
        if left == count
        else f"{count} of the {left} free chips"
    )
