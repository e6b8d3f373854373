"""Places for all pods of a gang, or for none of them.

The largest pods come first, each on the node that is best for it by itself.
If that fails and another arrangement may fit, `packing.py` searches for one.
A pod that has a place keeps it while the place is good.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips, packing
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import gang_of_kinds
from scheduler_core.placement.gang_query import (
    Member,
    NodeQuery,
    UsedNode,
    assign_ranks,
    verify_place,
)
from scheduler_core.placement.pod import placement
from scheduler_core.placement.siblings import Siblings
from scheduler_core.products.columns import Product

_TAKEN_BY_JOB = "taken by other pods of this job"
#: sort key of a node: key of its row, its rank, its name
_Key = tuple[str, int, str]


def plan(
    wanted: Product | str,
    members: Sequence[Member],
    cluster: NodeIndex,
    *,
    names: Iterable[str] | None = None,
    siblings: Siblings | None = None,
) -> JobPlacement | Rejection:
    """Place all members of a job, or return why not all of them fit.

    Args:
        wanted: Resource, or the row that the job means (`lookup.resolve_job`).
        members: Pods, each once; at least one.
        cluster: Nodes; not changed.
        names: Candidate nodes, each once, in any order; None is all.
        siblings: Which nodes members may have and share (`gang_of_kinds`); None is all.

    Returns:
        A place for each pod, ordered by rank. The search is complete for pods of equal
        size, for sizes that divide each other, and for any job of up to
        `packing.EXACT_UP_TO` pods. Beyond that it ends at a bound (`packing.BOUND`),
        and the rejection says so.

    Cost:
        A few microseconds for each pod.
    """
    if siblings is not None:
        return gang_of_kinds.plan(wanted, members, cluster, siblings, names=names)
    node_names = None if names is None else tuple(names)
    query = NodeQuery(
        wanted=wanted, cluster=cluster, names=node_names, in_network=len(members) > 1
    )
    placements: list[Placement] = []
    to_place: dict[int, list[tuple[int, str]]] = {}
    for rank, member in assign_ranks(members):
        place = member.place and verify_place(query, member)
        if place:
            placements.append(place._replace(pod=member.name, rank=rank))
        else:
            to_place.setdefault(member.chips, []).append((rank, member.name))
    arranged = _arrange(query, to_place)
    if isinstance(arranged, Rejection):
        return arranged
    return JobPlacement(
        pods=tuple(sorted([*placements, *arranged], key=attrgetter("rank")))
    )


class _Draft:
    """Places of the pods of one job, on an index that must not change meanwhile.

    Planning a job must not change the index. So the draft remembers the nodes that it
    has used, with their chips still free.

    Invariant: `_used_nodes` has each node with a pod of the draft, and no chip is
    given twice.
    """

    __slots__ = ("_nodes", "_query", "_used_nodes")

    def __init__(self, query: NodeQuery) -> None:
        self._query = query
        self._nodes = query.cluster.nodes(query.wanted)
        self._used_nodes: dict[str, UsedNode] = {}

    def place_each(
        self, count: int, pods: Sequence[tuple[int, str]]
    ) -> Iterator[Placement]:
        """Place pods of `count` chips, one after the other, each on its best node.

        Args:
            count: Chips of each pod.
            pods: Rank and name of each pod.

        Yields:
            Their places; fewer than `pods` when not all of them fit.

        Cost:
            A few microseconds for each pod, whatever the size of the cluster.
        """
        used_keys: list[_Key] = [
            (node.row.key, rank, name)
            for name, node in self._used_nodes.items()
            if (rank := node.rank(count)) is not None
        ]
        heapify(used_keys)
        unused = self._rank_unused(count)
        next_unused = next(unused, None)
        for number, pod in pods:
            if used_keys and (next_unused is None or used_keys[0] < next_unused[0]):
                node = self._used_nodes[heappop(used_keys)[2]]
            elif next_unused is not None:
                (_, _, name), row = next_unused
                state = self._nodes[name]
                node = UsedNode(row=row, node=state, free=state.free_for(row))
                self._used_nodes[name] = node
                next_unused = next(unused, None)
            else:
                return
            chosen = chips.choose(node.row, node.free, count)
            yield placement(
                node.row, node.node, node.free, chosen, pod=pod, rank=number
            )
            node.free &= ~chosen
            if node.free and (rank := node.rank(count)) is not None:
                heappush(used_keys, (node.row.key, rank, node.node.name))

    def _rank_unused(self, count: int) -> Iterator[tuple[_Key, Product]]:
        """Yield the nodes that the draft has not used, best first."""
        used_names = frozenset(self._used_nodes)
        for row, rank, name in self._query.serving(count):
            if name not in used_names:
                yield (row.key, rank, name), row


def _arrange(
    query: NodeQuery, pods: Mapping[int, Sequence[tuple[int, str]]]
) -> list[Placement] | Rejection:
    """Place pods, given as {size: (rank, name) of each}, or return why not."""
    draft = _Draft(query)
    placements: list[Placement] = []
    failed_size = None
    for size in sorted(pods, reverse=True):
        placed = list(draft.place_each(size, pods[size]))
        placements += placed
        if failed_size is None and len(placed) < len(pods[size]):
            failed_size = size
    if failed_size is None:
        return placements
    packing_result = _pack(query, {size: len(pods[size]) for size in pods})
    if packing_result.pods is not None:
        return _read_packing(query, packing_result.pods, pods)
    total = sum(map(len, pods.values()))
    text = f"{len(placements)} of {total} pods fit"
    if packing_result.bounded:
        text += "; the search for another way ended at its bound"
    return Rejection(job=text, reasons=query.reasons(failed_size, _TAKEN_BY_JOB))


def _pack(query: NodeQuery, sizes: Mapping[int, int]) -> packing.Packing:
    """Search for another arrangement, unless the greedy one was already exact."""
    free: dict[str, tuple[Product, int]] = {}
    for size in sorted(sizes, reverse=True):
        for row, _, name in query.serving(size):
            if name not in free:
                free[name] = row, query.nodes[name].free_for(row)
    rows = {row for row, _ in free.values()}
    if all(packing.is_greedy_exact(row, tuple(sizes)) for row in rows):
        return packing.Packing(pods=None)
    return packing.pack(free, sizes)


def _read_packing(
    query: NodeQuery,
    filled_nodes: Mapping[str, Sequence[tuple[int, int]]],
    pods: Mapping[int, Sequence[tuple[int, str]]],
) -> list[Placement]:
    """Return the placements of a packing, each with its reason."""
    placements: list[Placement] = []
    pods_by_size = {size: iter(group) for size, group in pods.items()}
    for name, filling in sorted(filled_nodes.items()):
        node = query.nodes[name]
        row = query.row(node)
        free = node.free_for(row)
        for size, mask in filling:
            rank, pod = next(pods_by_size[size])
            place = placement(row, node, free, mask, pod=pod, rank=rank)
            reason = f"{place.reason}, so that all pods of the job fit"
            placements.append(place._replace(reason=reason))
            free &= ~mask
    return placements
