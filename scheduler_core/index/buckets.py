"""Buckets of nodes with equal answers to every count, for one row of the table.

The key of a bucket determines all answers of its nodes. A query therefore looks at a
few dozen buckets instead of all nodes.
"""

from collections.abc import Container, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from scheduler_core.index.sorted_names import SortedNames
from scheduler_core.node import chips, order
from scheduler_core.node.reasons import Reason, Refusal, refusal
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product

#: rank of a node that cannot serve
NEVER = 1 << 30
#: refusal of an unknown node, and of a node without chips of the resource
NO_SUCH_NPU = Refusal(reason=Reason.NO_SUCH_NPU, text="no such NPU")
#: entries of the cache {state of a node: bucket}; a full cache is cleared
_REMEMBERED = 1 << 16


class Peers:
    """Nodes with equal ranks for every count; their refusals may differ."""

    __slots__ = ("names", "ranks", "served")

    def __init__(self, ranks: tuple[int, ...]) -> None:
        #: [count] = rank, from count 0; `NEVER` for counts that they cannot serve
        self.ranks = ranks
        #: (count, rank) of the counts that they can serve
        self.served = tuple(
            (count, rank) for count, rank in enumerate(ranks) if rank != NEVER
        )
        #: names of the nodes; empty when `served` is, because no query reads it then
        self.names = SortedNames()


class _BucketKey(NamedTuple):
    """Key of a bucket: all facts that its answers follow from."""

    #: [count] = rank, from count 0; `NEVER` for counts that its nodes cannot serve
    ranks: tuple[int, ...]
    barred: Reason | None
    #: number of chips of each node that may be given
    free: int
    #: counts that its nodes could serve if all healthy chips were free; bit n is n
    healthy: int
    #: likewise of the healthy chips that pods of the row may have
    usable: int


class Bucket:
    """Nodes with the same answer to every count, by the rule of one row."""

    __slots__ = ("_key", "nodes", "peers", "product", "ranks")

    def __init__(self, product: Product, peers: Peers, key: _BucketKey) -> None:
        self.product = product
        self.ranks = peers.ranks
        #: names of its nodes and of other nodes with equal ranks
        self.peers = peers
        #: number of nodes
        self.nodes = 0
        self._key = key

    def rank(self, count: int) -> int:
        """Return the rank of its nodes for `count` chips, or `NEVER`."""
        return self.ranks[count] if 0 < count < len(self.ranks) else NEVER

    def refusal(self, count: int) -> Refusal:
        """Return the refusal of its nodes; `CONFLICT` if they can serve `count`."""
        return refusal(self.reason(count), self.product, count)

    def reason(self, count: int) -> Reason:
        """Return the reason of `refusal`."""
        key = self._key
        if key.barred is not None:
            return key.barred
        if self.rank(count) != NEVER:
            return Reason.CONFLICT
        return chips.derive_reason(
            self.product,
            count,
            free=key.free,
            healthy=key.healthy,
            usable=key.usable,
        )


class RowBuckets:
    """Buckets of one row, and the ranks that have nodes.

    Invariant: `_by_rank[count][r]` are the peers with rank r that have nodes. Bit r of
    `_occupied[count]` is set exactly when there are any.

    The caches depend on the row alone, so their entries never become stale.
    """

    __slots__ = (
        *("_all_servable", "_buckets", "_by_rank", "_by_state", "_large"),
        *("_missing_cost", "_occupied", "_peers", "_ranks", "_servable", "product"),
    )

    def __init__(self, product: Product) -> None:
        counts = range(product.chip_count + 1)
        self.product = product
        #: whether masks have too many values to be cache keys; shapes are keys then
        self._large = product.chip_count > chips.SMALL
        self._missing_cost = order.missing_chip_cost(product)
        self._buckets: dict[_BucketKey, Bucket] = {}
        #: {ranks by count: nodes with these ranks}
        self._peers: dict[tuple[int, ...], Peers] = {}
        #: {facts of a node that its answers follow from: its bucket}
        self._by_state: dict[tuple[object, ...], Bucket] = {}
        #: {shape of chips: counts that they can serve, as bits}
        self._servable: dict[object, int] = {}
        #: {shape of free chips: ranks by count of a node without missing chips}
        self._ranks: dict[object, tuple[int, ...]] = {}
        #: counts that an empty node without faults can serve, as bits
        self._all_servable = chips.servable_counts(product, product.all_chips)
        #: [count] = {rank: peers that have nodes}
        self._by_rank: list[dict[int, list[Peers]]] = [{} for _ in counts]
        #: [count] = bits of the ranks that have nodes
        self._occupied = [0 for _ in counts]

    def bucket(self, state: NodeState) -> Bucket:
        """Return the bucket of a node in this state."""
        row, healthy = self.product, state.healthy
        usable = state.usable(row)
        free = state.free & usable
        key: tuple[object, ...] = (state.barred, healthy, free, usable)
        if self._large:
            by_health = (
                self._all_servable
                if healthy == row.all_chips
                else self._servable_counts(healthy)
            )
            key = (
                state.barred,
                self._missing_cost and healthy.bit_count(),
                chips.shape(row, free),
                by_health,
                by_health if usable == healthy else self._servable_counts(usable),
            )
        bucket = self._by_state.get(key)
        if bucket is None:
            if len(self._by_state) == _REMEMBERED:
                self._by_state.clear()
            bucket = self._find_bucket(state.barred, healthy, usable, free)
            self._by_state[key] = bucket
        return bucket

    def move(self, old: Bucket | None, new: Bucket | None, name: str) -> None:
        """Move a node from one bucket to another.

        Args:
            old: Current bucket; None for a new node.
            new: Next bucket; None to remove the node.
            name: Name of the node.
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

    def move_all(self, old: Bucket | None, new: Bucket, names: Sequence[str]) -> None:
        """Move nodes from one bucket to another.

        Args:
            old: Current bucket of all of them; None for new nodes.
            new: Next bucket.
            names: Names of the nodes, each once; at least one.
        """
        new.nodes += len(names)
        if old is not None:
            old.nodes -= len(names)
            if old.peers is new.peers:
                return
        if old is not None and old.peers.served:
            old.peers.names.remove_all(names)
            if not old.peers.names:
                self._vacate(old.peers)
        if new.peers.served:
            if not new.peers.names:
                self._occupy(new.peers)
            new.peers.names.add_all(names)

    def _add(self, peers: Peers, name: str) -> None:
        if not peers.served:
            return
        if not peers.names:
            self._occupy(peers)
        peers.names.add(name)

    def _remove(self, peers: Peers, name: str) -> None:
        if not peers.served:
            return
        peers.names.remove(name)
        if not peers.names:
            self._vacate(peers)

    def _occupy(self, peers: Peers) -> None:
        """Record that there are nodes with these ranks."""
        for count, rank in peers.served:
            self._by_rank[count].setdefault(rank, []).append(peers)
            self._occupied[count] |= 1 << rank

    def _vacate(self, peers: Peers) -> None:
        """Record that there is no node with these ranks any more."""
        for count, rank in peers.served:
            others = self._by_rank[count][rank]
            others.remove(peers)
            if not others:
                self._occupied[count] ^= 1 << rank

    def best(self, count: int, avoid: Container[str]) -> tuple[int, str] | None:
        """Return the best rank with a name outside `avoid`, and its first such name.

        Cost:
            One bucket, and a step for each name in `avoid`.
        """
        if not 0 < count < len(self._occupied):
            return None
        ranks, by_rank = self._occupied[count], self._by_rank[count]
        while ranks:
            rank = (ranks & -ranks).bit_length() - 1
            head = None
            for peers in by_rank[rank]:
                name = peers.names.first(avoid)
                if name is not None and (head is None or name < head):
                    head = name
            if head is not None:
                return rank, head
            ranks &= ranks - 1
        return None

    def best_among(
        self, count: int, names: frozenset[str], avoid: Container[str]
    ) -> set[str]:
        """Return those of `names` outside `avoid` that share the best rank of all.

        Cost:
            A step for each node of that rank and of better ones.
        """
        if not 0 < count < len(self._occupied):
            return set()
        ranks, by_rank = self._occupied[count], self._by_rank[count]
        while ranks:
            rank = (ranks & -ranks).bit_length() - 1
            best = {
                name
                for peers in by_rank[rank]
                for name in peers.names.among(names)
                if name not in avoid
            }
            if best:
                return best
            ranks &= ranks - 1
        return set()

    def ranked(self, count: int) -> Iterator[tuple[int, str]]:
        """Yield (rank, name) of each node that can serve, best first, then by name.

        The buckets must not change before the iteration ends.
        """
        if not 0 < count < len(self._occupied):
            return
        ranks = self._occupied[count]
        while ranks:
            rank = (ranks & -ranks).bit_length() - 1
            name_sets = [peers.names for peers in self._by_rank[count][rank]]
            for name in name_sets[0] if len(name_sets) == 1 else merge(*name_sets):
                yield rank, name
            ranks &= ranks - 1

    def refusals(self, count: int) -> Iterator[tuple[Refusal, int]]:
        """Yield each refusal of the nodes for `count`, with the number of nodes."""
        nodes: dict[Reason, int] = {}
        for bucket in self._buckets.values():
            if bucket.nodes:
                reason = bucket.reason(count)
                nodes[reason] = nodes.get(reason, 0) + bucket.nodes
        for reason, number in nodes.items():
            yield refusal(reason, self.product, count), number

    def _find_bucket(
        self, barred: Reason | None, healthy: int, usable: int, free: int
    ) -> Bucket:
        """Return the bucket of all nodes with these facts; create it if needed."""
        if barred is not None:
            healthy = usable = free = 0
        key = _BucketKey(
            ranks=self._rank_counts(
                free, self.product.chip_count - healthy.bit_count()
            ),
            barred=barred,
            free=free.bit_count(),
            healthy=self._servable_counts(healthy),
            usable=self._servable_counts(usable),
        )
        bucket = self._buckets.get(key)
        if bucket is None:
            peers = self._peers.get(key.ranks)
            if peers is None:
                peers = self._peers[key.ranks] = Peers(key.ranks)
            bucket = self._buckets[key] = Bucket(self.product, peers, key)
        return bucket

    def _servable_counts(self, mask: int) -> int:
        """Return the counts that these chips can serve, as bits; cached by shape."""
        kind = chips.shape(self.product, mask)
        counts = self._servable.get(kind)
        if counts is None:
            counts = chips.servable_counts(self.product, mask)
            self._servable[kind] = counts
        return counts

    def _rank_counts(self, free: int, missing: int) -> tuple[int, ...]:
        """Return ranks by count, from 0; `NEVER` for counts that cannot be served."""
        kind = chips.shape(self.product, free)
        ranks = self._ranks.get(kind)
        if ranks is None:
            ranks = self._ranks[kind] = _compute_ranks(self.product, free)
        added = self._missing_cost * missing
        if not added:
            return ranks
        return tuple(rank if rank == NEVER else rank + added for rank in ranks)


def _compute_ranks(product: Product, free: int) -> tuple[int, ...]:
    ranks = [NEVER] * (product.chip_count + 1)
    for count in product.counts:
        key = order.rank(product, product.all_chips, free, count)
        if key is not None:
            ranks[count] = order.encode_rank(product, key)
    return tuple(ranks)
