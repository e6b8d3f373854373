"""Where one pod goes, and why; or why it can go nowhere, with counts.

A function of its arguments: it changes nothing, and asked twice it answers twice the
same. Whoever acts on the answer puts the node's new state into the index.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache

from scheduler_core import chips
from scheduler_core.cluster import Cluster
from scheduler_core.layouts import LAYOUTS
from scheduler_core.rows import Product, Way

#: sentences that are remembered
_REMEMBERED = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A node, chips of it, and the reason for the choice in a sentence."""

    node: str
    #: physical ids, ascending
    chips: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why no node serves."""

    #: (text, nodes of which it is said), the most frequent first, then by text
    reasons: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> int:
        """How many nodes were looked at."""
        return sum(nodes for _, nodes in self.reasons)

    @property
    def text(self) -> str:
        """All reasons in a line: "48 no HCCS ring has 4 free chips, 12 …"."""
        if not self.reasons:
            return "no node to look at"
        return ", ".join(f"{nodes} {text}" for text, nodes in self.reasons)


def place(
    wanted: Product | str,
    count: int,
    cluster: Cluster,
    *,
    names: Iterable[str] | None = None,
    avoid: Container[str] = (),
    in_network: bool = False,
) -> Placement | Rejection:
    """Choose a node for one pod, and chips of it.

    The node that comes first by the order of its row, then by name; of it the chips
    that the row prefers.

    Args:
        wanted: The resource that the pod asks for, and each node serves by its own
            row; or the row that the pod's job means (`finding.wanted`).
        count: Chips that the whole pod occupies.
        cluster: The nodes; not changed.
        names: Only these nodes, each once, in any order; None is all.
        avoid: Not these nodes; one that could serve counts as a conflict.
        in_network: Whether the pod's job has several pods (`rows.distributed`).

    Returns:
        Node and chips, or the reasons; their counts add up to the nodes looked at.

    Cost:
        Without `names` a few microseconds, whatever the size of the cluster; with
        them, a look-up for each.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification";
        Node Scoring, "Common Node Selection Principle".
    """
    if names is not None:
        names = tuple(names)
    found = cluster.best(wanted, count, names=names, avoid=avoid, in_network=in_network)
    if found is None:
        reasons = cluster.refusals(wanted, count, names=names, in_network=in_network)
        return Rejection(reasons=reasons)
    node, row = found.node, found.row
    free = node.free & node.usable(row) if row.for_distributed else node.free
    chosen = chips.choose(row, free, count)
    # A chip that is not there is missing only where a whole server is expected.
    of = row.chip_count if row.capacity_staged else node.inventory.bit_count()
    return Placement(
        node=node.name,
        chips=chips.ids_of(chosen),
        reason=_sentence(row, free, chosen, node.healthy.bit_count(), of),
    )


def _sentence(row: Product, free: int, chosen: int, healthy: int, of: int) -> str:
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
    count = chosen.bit_count()
    way = next(way for way in row.ways[count] if LAYOUTS[way].admits(row, chosen))
    if way is Way.GROUPS:
        return _share_of_groups(row, free, chosen)
    if way is Way.HALVES:
        return f"{count // 2} chips of each {row.group_kind.value}"
    if way is Way.PAIRS:
        group = row.group_kind.value
        return f"{count // 2} chips of each {group}, at matching positions"
    return _of(count, free.bit_count())


def _share_of_groups(row: Product, free: int, chosen: int) -> str:
    count, group = chosen.bit_count(), row.group_kind
    home = sum(used := [group for group in row.groups if group & chosen])
    near = (free & home).bit_count()
    if len(used) == 1:
        share = f"{_of(count, near)} of one {group.value}"
        return f"{share} ({(free & ~home).bit_count()} more free on the node)"
    whole, rest = divmod(count, row.group_size)
    if not rest:
        return group.whole(whole)
    more = _of(rest, near - whole * row.group_size)
    return f"{group.whole(whole)} and {more} of one more"


def _of(count: int, left: int) -> str:
    return (
        f"the last {count} free"
        if left == count
        else f"{count} of the {left} free chips"
    )
