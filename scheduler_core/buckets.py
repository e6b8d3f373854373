"""Nodes that give the same answers lie together: the inside of the index.

A bucket is named by its verdicts, a rank or a reason for every count, so nothing
about a node's chips can matter that its bucket does not say.
"""

from collections.abc import Container, Iterator
from heapq import merge

from scheduler_core import chips, scoring
from scheduler_core.names import SortedNames
from scheduler_core.nodes import NodeState
from scheduler_core.products import Product
from scheduler_core.reasons import Reason, Refusal, refusal

#: the rank of a node that cannot serve
NEVER = 1 << 30
#: said of a node that we know nothing about, and of one that serves other jobs
NO_SUCH_NPU = Refusal(reason=Reason.NO_SUCH_NPU, text="no such NPU")
#: states of nodes whose bucket is remembered; then all are forgotten
_REMEMBERED = 1 << 16

#: a rank or `NEVER`, and a reason, by count from 0
_Verdicts = tuple[tuple[int, ...], tuple[Reason | None, ...]]


class Peers:
    """Nodes that are equally good for every count, whatever keeps them from others."""

    __slots__ = ("names", "ranks")

    def __init__(self, ranks: tuple[int, ...]) -> None:
        """Begin without nodes."""
        #: by count, from 0; `NEVER` where they cannot serve
        self.ranks = ranks
        self.names = SortedNames()


class Bucket:
    """Nodes that give the same answer to every count, by the rule of one row."""

    __slots__ = ("nodes", "peers", "product", "ranks", "reasons")

    def __init__(
        self, product: Product, peers: Peers, reasons: tuple[Reason | None, ...]
    ) -> None:
        """Begin without nodes."""
        self.product = product
        self.ranks = peers.ranks
        #: by count, from 0; why it cannot serve
        self.reasons = reasons
        #: where the names of its nodes lie, and those of others that are as good
        self.peers = peers
        #: how many nodes it has
        self.nodes = 0

    def rank(self, count: int) -> int:
        """How good its nodes are for `count` chips, or `NEVER`."""
        return self.ranks[count] if 0 < count < len(self.ranks) else NEVER

    def refusal(self, count: int) -> Refusal:
        """Why its nodes cannot serve; if they can, that they are to be avoided."""
        # Index 0 carries what holds for any illegal count.
        reason = self.reasons[count if 0 < count < len(self.reasons) else 0]
        return refusal(reason or Reason.CONFLICT, self.product, count)


class Shelf:
    """The buckets of one row, and which ranks are to be had.

    Invariant: `_by_rank[count][r]` are the peers of that rank that have nodes, and
    bit r of `_occupied[count]` is set exactly when there are any.
    """

    __slots__ = (
        *("_buckets", "_by_rank", "_by_state", "_large", "_occupied", "_peers"),
        "product",
    )

    def __init__(self, product: Product) -> None:
        """Begin without nodes."""
        counts = range(product.chip_count + 1)
        self.product = product
        #: too many states to tell them apart by their masks
        self._large = product.chip_count > chips.SMALL
        self._buckets: dict[_Verdicts, Bucket] = {}
        self._peers: dict[tuple[int, ...], Peers] = {}
        #: {what matters of a node: its bucket}: most states have been seen before
        self._by_state: dict[tuple[object, ...], Bucket] = {}
        self._by_rank: list[dict[int, list[Peers]]] = [{} for _ in counts]
        self._occupied = [0 for _ in counts]

    def bucket(self, state: NodeState) -> Bucket:
        """The bucket of a node in this state."""
        product, healthy = self.product, state.healthy
        usable = state.usable(product) if product.for_distributed else healthy
        free = state.free & usable
        key: tuple[object, ...] = (state.barred, healthy, free, usable)
        if self._large:
            seen = (chips.shape(product, mask) for mask in (healthy, free, usable))
            key = (state.barred, *seen)
        bucket = self._by_state.get(key)
        if bucket is None:
            if len(self._by_state) == _REMEMBERED:
                self._by_state.clear()
            verdicts = _verdicts(product, state.barred, healthy, usable, free)
            bucket = self._by_state[key] = self._of(verdicts)
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
        was_empty = not peers.names
        peers.names.add(name)
        if not was_empty:
            return
        for count, rank in enumerate(peers.ranks):
            if rank != NEVER:
                self._by_rank[count].setdefault(rank, []).append(peers)
                self._occupied[count] |= 1 << rank

    def _remove(self, peers: Peers, name: str) -> None:
        peers.names.remove(name)
        if peers.names:
            return
        for count, rank in enumerate(peers.ranks):
            if rank != NEVER:
                others = self._by_rank[count][rank]
                others.remove(peers)
                if not others:
                    self._occupied[count] &= ~(1 << rank)

    def best(self, count: int, avoid: Container[str]) -> tuple[int, str] | None:
        """The best rank that has a name outside `avoid`, and the first such name.

        Cost:
            One bucket, and a step for each name that is avoided.
        """
        if not 0 < count < len(self._occupied):
            return None
        left = self._occupied[count]
        while left:
            rank = (left & -left).bit_length() - 1
            heads = [
                head
                for peers in self._by_rank[count][rank]
                if (head := _first_outside(peers.names, avoid)) is not None
            ]
            if heads:
                return rank, min(heads)
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

    def buckets(self) -> list[Bucket]:
        """Those that have nodes."""
        return [bucket for bucket in self._buckets.values() if bucket.nodes]

    def _of(self, verdicts: _Verdicts) -> Bucket:
        bucket = self._buckets.get(verdicts)
        if bucket is None:
            ranks, reasons = verdicts
            peers = self._peers.get(ranks)
            if peers is None:
                peers = self._peers[ranks] = Peers(ranks)
            bucket = self._buckets[verdicts] = Bucket(self.product, peers, reasons)
        return bucket


def _verdicts(
    product: Product, barred: Reason | None, healthy: int, usable: int, free: int
) -> _Verdicts:
    counts = range(product.chip_count + 1)
    reasons = tuple(
        barred or chips.why_not(product, free, healthy, count, usable=usable)
        for count in counts
    )
    keys = [scoring.rank(product, healthy, free, count) for count in counts]
    ranks = tuple(
        NEVER if reason or key is None else scoring.number(product, key)
        for reason, key in zip(reasons, keys, strict=True)
    )
    return ranks, reasons


def _first_outside(names: SortedNames, avoid: Container[str]) -> str | None:
    return next((name for name in names if name not in avoid), None)
