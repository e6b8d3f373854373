"""Draft of a plan: the pods of a job that already have their places on the index.

Planning a job must not change the index.
So the draft remembers the nodes that it has used, with their chips still free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from scheduler_core.index.queries import NodeIndex
from scheduler_core.node import chips, order
from scheduler_core.node.decision import Placement
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product

#: sort key of a node: key of its row, its rank, its name
_Key = tuple[str, int, str]


@dataclass(slots=True)
class _UsedNode:
    """Node on which the draft has placed pods."""

    row: Product
    node: NodeState
    #: mask of the chips that are still free
    free: int

    def rank(self, count: int) -> int | None:
        """Return the node's present rank for a pod of `count` chips, or None."""
        key = order.rank(self.row, self.node.healthy, self.free, count)
        return None if key is None else order.encode_rank(self.row, key)


class Draft:
    """Places of the pods of one job, on an index that must not change meanwhile.

    Invariant: `_used_nodes` has each node with a pod of the draft, and no chip is
    given twice.
    """

    __slots__ = (
        "_cluster",
        "_in_network",
        "_names",
        "_nodes",
        "_used_nodes",
        "_wanted",
    )

    def __init__(
        self,
        cluster: NodeIndex,
        wanted: Product | str,
        *,
        names: Sequence[str] | None = None,
        in_network: bool = False,
    ) -> None:
        """Start without pods. Arguments as for `NodeIndex.best`."""
        self._cluster = cluster
        self._nodes = cluster.nodes(wanted)
        self._wanted = wanted
        self._names = names
        self._in_network = in_network
        self._used_nodes: dict[str, _UsedNode] = {}

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
                node = self._add_node(next_unused[1], next_unused[0][2])
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
        ranked = self._cluster.ranked(
            self._wanted, count, names=self._names, in_network=self._in_network
        )
        used_names = frozenset(self._used_nodes)
        for row, rank, name in ranked:
            if name not in used_names:
                yield (row.key, rank, name), row

    def _add_node(self, row: Product, name: str) -> _UsedNode:
        node = self._nodes[name]
        entry = self._used_nodes[name] = _UsedNode(
            row=row, node=node, free=node.free_for(row)
        )
        return entry
