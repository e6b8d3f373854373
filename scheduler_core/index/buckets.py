"""Nodes that give the same answers lie together: the inside of the index.

A bucket is named by its verdicts, or by what they follow from, so nothing about a
node's chips can matter that its bucket does not say.
"""

from collections.abc import Container, Iterator
from heapq import merge
from typing import NamedTuple

from scheduler_core.index.sorted_names import SortedNames
from scheduler_core.node import chips, order
from scheduler_core.node.reasons import Reason, Refusal, refusal
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product

#: the rank of a node that cannot serve
NEVER = 1 << 30
#: said of a node that we know nothing about, and of one that serves other jobs
NO_SUCH_NPU = Refusal(reason=Reason.NO_SUCH_NPU, text="no such NPU")
#: states of nodes whose bucket is remembered; then all are forgotten
_REMEMBERED = 1 << 16


class Peers:
    """Nodes that are equally good for every count, whatever keeps them from others."""

    __slots__ = ("names", "ranks", "served")

    def __init__(self, ranks: tuple[int, ...]) -> None:
        """Begin without nodes."""
        #: by count, from 0; `NEVER` where they cannot serve
        self.ranks = ranks
        #: (count, rank) of those that they can
        self.served = tuple(
            (count, rank) for count, rank in enumerate(ranks) if rank != NEVER
        )
        #: of those that can serve at all: nobody asks for the others by name
        self.names = SortedNames()


class _Verdicts(NamedTuple):
    """What the answers of a bucket follow from. Bit n of a mask is n chips."""

    #: by count, from 0; `NEVER` where its nodes cannot serve
    ranks: tuple[int, ...]
    barred: Reason | None
    #: how many chips of each node may be given
    free: int
    #: what its nodes could serve if all healthy chips were free
    healthy: int
    #: what they could serve if all chips were free that pods of the row may have
    usable: int


class Bucket:
    """Nodes that give the same answer to every count, by the rule of one row."""

    __slots__ = ("_verdicts", "nodes", "peers", "product", "ranks")

    def __init__(self, product: Product, peers: Peers, verdicts: _Verdicts) -> None:
        """Begin without nodes."""
        self.product = product
        self.ranks = peers.ranks
        #: where the names of its nodes lie, and those of others that are as good
        self.peers = peers
        #: how many nodes it has
        self.nodes = 0
        self._verdicts = verdicts

    def rank(self, count: int) -> int:
        """How good its nodes are for `count` chips, or `NEVER`."""
        return self.ranks[count] if 0 < count < len(self.ranks) else NEVER

    def refusal(self, count: int) -> Refusal:
        """Why its nodes cannot serve; if they can, that they are to be avoided."""
        return refusal(self.reason(count), self.product, count)

    def reason(self, count: int) -> Reason:
        """The reason that its nodes are refused for, as `refusal` says it."""
        verdicts = self._verdicts
        if verdicts.barred is not None:
            return verdicts.barred
        if self.rank(count) != NEVER:
            return Reason.CONFLICT
        return chips.why(
            self.product,
            count,
            free=verdicts.free,
            healthy=verdicts.healthy,
            usable=verdicts.usable,
        )


class Shelf:
    """The buckets of one row, and which ranks are to be had.

    Invariant: `_by_rank[count][r]` are the peers of that rank that have nodes, and
    bit r of `_occupied[count]` is set exactly when there are any.

    What is remembered of states follows from the row alone, so it never grows old.
    """

    __slots__ = (
        *("_able", "_all", "_buckets", "_by_rank", "_by_state", "_large"),
        *("_missing", "_occupied", "_peers", "_ranks", "product"),
    )

    def __init__(self, product: Product) -> None:
        """Begin without nodes."""
        counts = range(product.chip_count + 1)
        self.product = product
        #: too many states to tell them apart by their masks
        self._large = product.chip_count > chips.SMALL
        self._missing = order.of_a_missing_chip(product)
        self._buckets: dict[_Verdicts, Bucket] = {}
        self._peers: dict[tuple[int, ...], Peers] = {}
        #: {what matters of a node: its bucket}: most states have been seen before
        self._by_state: dict[tuple[object, ...], Bucket] = {}
        #: {shape of chips: the counts that they can serve, as bits}
        self._able: dict[object, int] = {}
        #: {shape of free chips: ranks by count, of a node that has all chips}
        self._ranks: dict[object, tuple[int, ...]] = {}
        #: the counts that a node can serve when all is well
        self._all = chips.able(product, product.all_chips)
        self._by_rank: list[dict[int, list[Peers]]] = [{} for _ in counts]
        self._occupied = [0 for _ in counts]

    def bucket(self, state: NodeState) -> Bucket:
        """The bucket of a node in this state."""
        row, healthy = self.product, state.healthy
        usable = state.usable(row)
        free = state.free & usable
        key: tuple[object, ...] = (state.barred, healthy, free, usable)
        if self._large:
            could = self._all if healthy == row.all_chips else self._could(healthy)
            key = (
                state.barred,
                self._missing and healthy.bit_count(),
                chips.shape(row, free),
                could,
                could if usable == healthy else self._could(usable),
            )
        bucket = self._by_state.get(key)
        if bucket is None:
            if len(self._by_state) == _REMEMBERED:
                self._by_state.clear()
            bucket = self._by_state[key] = self._of(state.barred, healthy, usable, free)
        return bucket

    def move(self, old: Bucket | None, new: Bucket | None, name: str) -> None:
        """Take a node out of the bucket in which it lies, and lay it into another.

        Args:
            old: Where it lies; None is nowhere.
            new: Where it is to lie; None is nowhere.
            name: The node's.
        """
        if old is not None:
            old.nodes -= 1
        if new is not None:
            new.nodes += 1
        if old is None or new is None or old.peers is not new.peers:
            if old is not None:
                self._remove(old.peers, name)
            if new is not None:
                self._add(new.peers, name)

    def _add(self, peers: Peers, name: str) -> None:
        if not peers.served:
            return
        was_empty = not peers.names
        peers.names.add(name)
        if not was_empty:
            return
        for count, rank in peers.served:
            self._by_rank[count].setdefault(rank, []).append(peers)
            self._occupied[count] |= 1 << rank

    def _remove(self, peers: Peers, name: str) -> None:
        if not peers.served:
            return
        peers.names.remove(name)
        if peers.names:
            return
        for count, rank in peers.served:
            others = self._by_rank[count][rank]
            others.remove(peers)
            if not others:
                self._occupied[count] ^= 1 << rank

    def best(self, count: int, avoid: Container[str]) -> tuple[int, str] | None:
        """The best rank that has a name outside `avoid`, and the first such name.

        Cost:
            One bucket, and a step for each name that is avoided.
        """
        if not 0 < count < len(self._occupied):
            return None
        left, by_rank = self._occupied[count], self._by_rank[count]
        while left:
            rank = (left & -left).bit_length() - 1
            head = None
            for peers in by_rank[rank]:
                name = peers.names.first(avoid)
                if name is not None and (head is None or name < head):
                    head = name
            if head is not None:
                return rank, head
            left &= left - 1
        return None

    def ranked(self, count: int) -> Iterator[tuple[int, str]]:
        """Every rank and name that serves, the best first; not while it changes."""
        if not 0 < count < len(self._occupied):
            return
        left = self._occupied[count]
        while left:
            rank = (left & -left).bit_length() - 1
            some = [peers.names for peers in self._by_rank[count][rank]]
            for name in some[0] if len(some) == 1 else merge(*some):
                yield rank, name
            left &= left - 1

    def refusals(self, count: int) -> Iterator[tuple[Refusal, int]]:
        """Why the nodes cannot serve, each reason with the number of nodes."""
        nodes: dict[Reason, int] = {}
        for bucket in self._buckets.values():
            if bucket.nodes:
                reason = bucket.reason(count)
                nodes[reason] = nodes.get(reason, 0) + bucket.nodes
        for reason, number in nodes.items():
            yield refusal(reason, self.product, count), number

    def _of(
        self, barred: Reason | None, healthy: int, usable: int, free: int
    ) -> Bucket:
        """The bucket of all nodes with these verdicts."""
        if barred is None:
            verdicts = _Verdicts(
                ranks=self._ranked(free, self.product.chip_count - healthy.bit_count()),
                barred=None,
                free=free.bit_count(),
                healthy=self._could(healthy),
                usable=self._could(usable),
            )
        else:
            verdicts = _Verdicts(
                ranks=self._ranked(0, 0), barred=barred, free=0, healthy=0, usable=0
            )
        bucket = self._buckets.get(verdicts)
        if bucket is None:
            peers = self._peers.get(verdicts.ranks)
            if peers is None:
                peers = self._peers[verdicts.ranks] = Peers(verdicts.ranks)
            bucket = self._buckets[verdicts] = Bucket(self.product, peers, verdicts)
        return bucket

    def _could(self, mask: int) -> int:
        """The counts that these chips can serve, as bits."""
        kind = chips.shape(self.product, mask)
        able = self._able.get(kind)
        if able is None:
            able = self._able[kind] = chips.able(self.product, mask)
        return able

    def _ranked(self, free: int, missing: int) -> tuple[int, ...]:
        """Ranks by count, from 0; `NEVER` for counts that cannot be served."""
        kind = chips.shape(self.product, free)
        ranks = self._ranks.get(kind)
        if ranks is None:
            ranks = self._ranks[kind] = _ranks(self.product, free)
        more = self._missing * missing
        if not more:
            return ranks
        return tuple(rank if rank == NEVER else rank + more for rank in ranks)


def _ranks(product: Product, free: int) -> tuple[int, ...]:
    ranks = [NEVER] * (product.chip_count + 1)
    for count in product.counts:
        key = order.rank(product, product.all_chips, free, count)
        if key is not None:
            ranks[count] = order.number(product, key)
    return tuple(ranks)
