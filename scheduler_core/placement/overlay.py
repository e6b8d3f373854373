"""The index with pods laid on top of it: what planning a whole job works on.

The index itself stays as it is; only the nodes that the draft has used are
remembered, with the chips that are still free there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from scheduler_core.index.cluster import Cluster
from scheduler_core.node import chips, order
from scheduler_core.node.decision import Placement
from scheduler_core.node.state import NodeState
from scheduler_core.placement.pod import placement
from scheduler_core.products.columns import Product

#: what a node is compared by: its row's key, its rank, its name
_Key = tuple[str, int, str]


@dataclass(slots=True)
class _Used:
    """A node that the draft has changed."""

    row: Product
    node: NodeState
    #: mask of the chips that may still be given
    free: int

    def rank(self, count: int) -> int | None:
        """How good it is now."""
        key = order.rank(self.row, self.node.healthy, self.free, count)
        return None if key is None else order.number(self.row, key)


class Draft:
    """Pods of one job, laid on an index that does not change meanwhile.

    Invariant: `_used` has each node that the draft has changed, and no chip is given
    twice.
    """

    __slots__ = ("_cluster", "_in_network", "_names", "_nodes", "_used", "_wanted")

    def __init__(
        self,
        cluster: Cluster,
        wanted: Product | str,
        *,
        names: Sequence[str] | None = None,
        in_network: bool = False,
    ) -> None:
        """Begin with nothing laid on it. Arguments as for `Cluster.best`."""
        self._cluster = cluster
        self._nodes = cluster.line(wanted)
        self._wanted = wanted
        self._names = names
        self._in_network = in_network
        self._used: dict[str, _Used] = {}

    def place_each(
        self, count: int, pods: Sequence[tuple[int, str]]
    ) -> Iterator[Placement]:
        """Lay pods of `count` chips, one after the other, each where it is best.

        Args:
            count: Chips of each.
            pods: Rank and name of each.

        Yields:
            Their places; fewer than `pods` when there is no more room.

        Cost:
            A few microseconds for each pod, whatever the size of the cluster.
        """
        again: list[_Key] = [
            (used.row.key, rank, name)
            for name, used in self._used.items()
            if (rank := used.rank(count)) is not None
        ]
        heapify(again)
        fresh = self._fresh(count)
        head = next(fresh, None)
        for number, pod in pods:
            if again and (head is None or again[0] < head[0]):
                used = self._used[heappop(again)[2]]
            elif head is not None:
                used = self._open(head[1], head[0][2])
                head = next(fresh, None)
            else:
                return
            chosen = chips.choose(used.row, used.free, count)
            yield placement(
                used.row, used.node, used.free, chosen, pod=pod, rank=number
            )
            used.free &= ~chosen
            if used.free and (rank := used.rank(count)) is not None:
                heappush(again, (used.row.key, rank, used.node.name))

    def _fresh(self, count: int) -> Iterator[tuple[_Key, Product]]:
        """The nodes that the draft has not used before, best first."""
        ranked = self._cluster.ranked(
            self._wanted, count, names=self._names, in_network=self._in_network
        )
        before = frozenset(self._used)
        for row, rank, name in ranked:
            if name not in before:
                yield (row.key, rank, name), row

    def _open(self, row: Product, name: str) -> _Used:
        node = self._nodes[name]
        used = self._used[name] = _Used(row=row, node=node, free=node.free_for(row))
        return used
