"""Results of a decision: a placement with its reason, or a rejection."""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.products.columns import Product, Way

#: entries of the cache of `_share`
_REMEMBERED = 1 << 14


class LeafUse(IntEnum):
    """Use of a leaf by jobs that cross the spine; the value is the annotation's."""

    IDLE = 0
    SHARED = 1
    EXCLUSIVE = 2


class Placement(NamedTuple):
    """A node, chips of it, and the reason for the choice in a sentence.

    It is a tuple because each decision makes one for each pod of a job. A frozen
    dataclass took a third of a decision's time.
    """

    node: str
    #: physical ids, ascending
    chips: tuple[int, ...]
    reason: str
    #: name of the pod in a job of several; "" for a single pod
    pod: str = ""
    #: number of the pod in the job, from 0; 0 for a single pod
    rank: int = 0
    #: leaf switch, if the job asked for switch affinity; else ""
    leaf: str = ""
    #: use that the job makes of `leaf`
    leaf_use: LeafUse = LeafUse.IDLE
    #: false when more jobs share `leaf` than should
    leaf_healthy: bool = True
    #: id of the physical SuperPoD, for a job of SuperPoDs; else -1
    superpod: int = -1
    #: number of the logical SuperPoD in the job, from 0; else -1
    superpod_rank: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Reasons why no node serves a pod or a job."""

    #: (text of a reason, number of nodes with it), most frequent first, then by text
    reasons: tuple[tuple[str, int], ...]
    #: reason that concerns the whole job; "" for a single pod
    job: str = ""

    @property
    def nodes(self) -> int:
        """Number of nodes that the decision looked at."""
        return sum(nodes for _, nodes in self.reasons)

    @property
    def text(self) -> str:
        """All reasons in a line: "48 no HCCS ring has 4 free chips, 12 …"."""
        node_reasons = ", ".join(f"{nodes} {text}" for text, nodes in self.reasons)
        parts = [part for part in (self.job, node_reasons) if part]
        return ": ".join(parts) if parts else "no node to look at"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlacement:
    """Placements of all pods of a job."""

    #: in the order of ranks
    pods: tuple[Placement, ...]


def describe_choice(row: Product, free: int, chosen: int, healthy: int, of: int) -> str:
    """Return a sentence that says why `chosen` were the best of the free chips.

    Args:
        row: The row that serves.
        free: Mask of the free chips before the choice.
        chosen: Mask of the chips of the pod.
        healthy: Number of healthy chips of the node.
        of: Number of all chips of the node.
    """
    if row.group_preference:
        share = _share(row, free, chosen)
    else:
        share = _count_of(chosen.bit_count(), free.bit_count())
    number = "all" if healthy == of else f"{healthy} of"
    return f"{share}, on a node with {number} {of} {row.noun}s healthy"


@lru_cache(maxsize=_REMEMBERED)
def _share(row: Product, free: int, chosen: int) -> str:
    """Return the part of the sentence that compares chosen with free chips."""
    count, way = chosen.bit_count(), _way(row, chosen)
    if way is Way.GROUPS:
        return _share_of_groups(row, free, chosen)
    if way is Way.HALVES:
        return f"{count // 2} chips of each {row.group_kind.value}"
    if way is Way.PAIRS:
        group = row.group_kind.value
        return f"{count // 2} chips of each {group}, at matching positions"
    return _count_of(count, free.bit_count())


def _way(row: Product, chosen: int) -> Way:
    """Return the first way of the row that describes the layout of these chips."""
    ways = row.ways[chosen.bit_count()]
    if len(ways) == 1:
        return ways[0]
    return next(way for way in ways if LAYOUTS[way].admits(row, chosen))


def _share_of_groups(row: Product, free: int, chosen: int) -> str:
    count, kind = chosen.bit_count(), row.group_kind
    first = row.groups[((chosen & -chosen).bit_length() - 1) // row.group_size]
    if not chosen & ~first:
        share = f"{_count_of(count, (free & first).bit_count())} of one {kind.value}"
        return f"{share} ({(free & ~first).bit_count()} more free on the node)"
    whole, rest = divmod(count, row.group_size)
    if not rest:
        return kind.whole(whole)
    home = sum(group for group in row.groups if group & chosen)
    rest_share = _count_of(rest, (free & home).bit_count() - whole * row.group_size)
    return f"{kind.whole(whole)} and {rest_share} of one more"


def _count_of(count: int, free_chips: int) -> str:
    return (
        f"the last {count} free"
        if free_chips == count
        else f"{count} of the {free_chips} free chips"
    )
