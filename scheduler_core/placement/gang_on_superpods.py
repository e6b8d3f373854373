"""Places for all pods of a job of logical SuperPoDs, or for none of them.

`topology/superpods.py` decides which nodes; every pod takes a separate node.
With L nodes for a logical SuperPoD, rank r belongs to logical SuperPoD r // L.
After a fault, a logical SuperPoD keeps its good places and their ranks.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.index.counts import Groups, set_bits
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement.gang_query import (
    Member,
    NodeQuery,
    assign_ranks,
    verify_place,
)
from scheduler_core.topology import superpods
from scheduler_core.topology.superpods import Block, Request

#: refusal texts of nodes that could take a pod of the job
_UNSUITABLE = "can take a pod, but its SuperPoD does not suit the job"
_UNKNOWN = "can take a pod, but its SuperPoD is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperPods:
    """Nodes of a cluster grouped by SuperPoD.

    Cost:
        A step for each node at construction, so that a decision needs none.
    """

    #: {node: id of its SuperPoD, 0 or more}
    of_node: Mapping[str, int] = field(default_factory=dict)
    #: nodes of each SuperPoD to keep free where possible
    reserve: int = 2
    #: ids of all SuperPoDs, ascending
    ids: tuple[int, ...] = field(init=False, repr=False, compare=False)
    #: nodes of each SuperPoD, in the order of `ids`
    groups: Groups = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Group the nodes once, since every decision reads the groups."""
        nodes: dict[int, list[str]] = {}
        for name, superpod in self.of_node.items():
            if superpod >= 0:
                nodes.setdefault(superpod, []).append(name)
        ids = tuple(sorted(nodes))
        object.__setattr__(self, "ids", ids)
        groups = tuple([tuple(nodes[superpod]) for superpod in ids])
        object.__setattr__(self, "groups", groups)


class _FreeNodes:
    """Nodes of each SuperPoD that fit a pod of a job and are not in use by it."""

    __slots__ = ("_census", "_grouping", "_query", "_size", "_used_nodes")

    def __init__(self, query: NodeQuery, grouping: SuperPods, size: int) -> None:
        #: number of chips of a pod
        self._size = size
        self._query = query
        self._grouping = grouping
        self._census = query.census(grouping.groups, size)
        self._used_nodes: set[str] = set()

    def use(self, nodes: Iterable[str]) -> None:
        """Mark these nodes as in use by the job."""
        self._used_nodes.update(nodes)

    def numbers(self) -> dict[int, int]:
        """Return {SuperPoD: number of its free nodes}."""
        slots = map(int.bit_count, self._census.slots)
        numbers = dict(zip(self._grouping.ids, slots, strict=True))
        of_node = self._grouping.of_node
        for superpod in {of_node.get(node, -1) for node in self._used_nodes}:
            if superpod in numbers:
                numbers[superpod] = len(self.nodes(superpod))
        return numbers

    def nodes(self, superpod: int) -> list[str]:
        """Return the free nodes of one SuperPoD, best first."""
        site = bisect_left(self._grouping.ids, superpod)
        group = self._grouping.groups[site]
        nodes = {group[position] for position in set_bits(self._census.slots[site])}
        return sorted(
            nodes - self._used_nodes,
            key=lambda node: (self._query.rank(self._size, node), node),
        )

    @property
    def total(self) -> int:
        """Nodes of all SuperPoDs that fit a pod, in use or not."""
        return self._census.total


def plan(
    query: NodeQuery,
    members: Sequence[Member],
    grouping: SuperPods,
    block_nodes: int,
    *,
    soft: bool,
) -> JobPlacement | Rejection:
    """Place all members of a job in SuperPoDs, each on a separate node.

    Args:
        query: Resource or row of the job, and the candidate nodes.
        members: Pods, each once; a multiple of `block_nodes`.
        grouping: Nodes by SuperPoD.
        block_nodes: Nodes of a logical SuperPoD.
        soft: Whether a logical SuperPoD may be spread over several physical ones.

    Returns:
        A place for each pod with its SuperPoDs, ordered by rank; or why the job does
        not fit.
    """
    gang = assign_ranks(members)
    size = max(member.chips for member in members)
    free = _FreeNodes(query, grouping, size)
    valid = {m.name: p for _, m in gang if (p := verify_place(query, m)) is not None}
    refilled = _refill_blocks(gang, valid, free, block_nodes, grouping)
    request = Request(
        blocks=len(gang) // block_nodes,
        block_nodes=block_nodes,
        reserve=grouping.reserve,
        soft=soft,
    )
    blocks = superpods.decide(
        request, free.numbers(), free.nodes, fixed_blocks=refilled
    )
    if isinstance(blocks, str):
        reasons = query.reasons_with_unknown(size, free.total, _UNSUITABLE, _UNKNOWN)
        return Rejection(job=blocks, reasons=reasons)
    slots = [(block.number, *port) for block in blocks for port in block.nodes]
    return JobPlacement(
        pods=tuple(
            [
                _place(query, valid.get(member.name), port, (rank, member))
                for (rank, member), port in zip(gang, slots, strict=True)
            ]
        )
    )


def _refill_blocks(
    gang: Sequence[tuple[int, Member]],
    valid: Mapping[str, Placement],
    free: _FreeNodes,
    block_nodes: int,
    grouping: SuperPods,
) -> list[Block]:
    """Return the logical SuperPoDs whose pods all had a place, with bad nodes replaced.

    Marks the nodes of these SuperPoDs as in use.
    """
    refilled: list[Block] = []
    for number in range(len(gang) // block_nodes):
        pods = [m for _, m in gang[number * block_nodes : (number + 1) * block_nodes]]
        places = [member.place for member in pods if member.place is not None]
        if len(places) < len(pods) or not any(member.name in valid for member in pods):
            continue
        nodes = tuple((grouping.of_node.get(p.node, -1), p.node) for p in places)
        block_before = Block(number=number, nodes=nodes)
        spare_nodes = {
            superpod: free.nodes(superpod) for superpod, _ in nodes if superpod >= 0
        }
        healthy = [valid[m.name].node for m in pods if m.name in valid]
        block = superpods.refill(block_before, healthy, spare_nodes)
        if block is not None:
            refilled.append(block)
            free.use(node for _, node in block.nodes)
    return refilled


def _place(
    query: NodeQuery,
    place_before: Placement | None,
    slot: tuple[int, int, str],
    pod: tuple[int, Member],
) -> Placement:
    number, superpod, name = slot
    rank, member = pod
    if place_before is not None and place_before.node == name:
        place = place_before._replace(pod=member.name, rank=rank)
    else:
        place = query.place(name, member, rank)
        place = place._replace(reason=f"{place.reason}, in SuperPoD {superpod}")
    return place._replace(superpod=superpod, superpod_rank=number)
