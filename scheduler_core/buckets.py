"""Nodes that give the same answers lie together: the inside of the index.

A bucket is named by its verdicts, a rank or a reason for every count, so nothing
about a node's chips can matter that its bucket does not say.
"""

from collections.abc import Container

from scheduler_core import chips, scoring
from scheduler_core.names import SortedNames
from scheduler_core.products import Product
from scheduler_core.reasons import Reason, Refusal, refusal

#: the rank of a node that cannot serve
NEVER = 1 << 30
#: said of a node that we know nothing about, and of one with another resource
NO_SUCH_NPU = Refusal(reason=Reason.NO_SUCH_NPU, text="no such NPU")

#: a rank or `NEVER`, and a reason, by count from 0
_Verdicts = tuple[tuple[int, ...], tuple[Reason | None, ...]]


class Bucket:
    """Nodes of one product that give the same answer to every count."""

    __slots__ = ("names", "product", "ranks", "reasons")

    def __init__(
        self,
        product: Product,
        ranks: tuple[int, ...],
        reasons: tuple[Reason | None, ...],
    ) -> None:
        """Begin without nodes."""
        self.product = product
        #: by count, from 0; `NEVER` where it cannot serve
        self.ranks = ranks
        #: by count, from 0; why it cannot serve
        self.reasons = reasons
        self.names = SortedNames()

    def rank(self, resource: str, count: int) -> int:
        """How good its nodes are for `count` chips, or `NEVER`."""
        if resource != self.product.resource or not 0 < count < len(self.ranks):
            return NEVER
        return self.ranks[count]

    def refusal(self, resource: str, count: int) -> Refusal:
        """Why its nodes cannot serve; if they can, that they are to be avoided."""
        if resource != self.product.resource:
            return NO_SUCH_NPU
        # Index 0 carries what holds for any illegal count.
        reason = self.reasons[count if 0 < count < len(self.reasons) else 0]
        return refusal(reason or Reason.CONFLICT, self.product, count)


class Shelf:
    """The buckets of one product, and which ranks are to be had.

    Invariant: bit r of `_occupied[count]` is set exactly when a bucket of
    `_by_rank[count][r]` has a node.
    """

    __slots__ = ("_buckets", "_by_masks", "_by_rank", "_occupied", "product")

    def __init__(self, product: Product) -> None:
        """Begin without nodes."""
        counts = range(product.chip_count + 1)
        self.product = product
        self._buckets: dict[_Verdicts, Bucket] = {}
        #: {(barred, healthy, free): its bucket}: most states have been seen before
        self._by_masks: dict[tuple[Reason | None, int, int], Bucket] = {}
        #: by count: {rank: buckets of that rank, empty ones too}
        self._by_rank: list[dict[int, list[Bucket]]] = [{} for _ in counts]
        #: by count: a bit for each rank
        self._occupied = [0 for _ in counts]

    def bucket(self, barred: Reason | None, healthy: int, free: int) -> Bucket:
        """The bucket of a node in this state."""
        key = (barred, healthy, free)
        bucket = self._by_masks.get(key)
        if bucket is None:
            verdicts = _verdicts(self.product, barred, healthy, free)
            bucket = self._by_masks[key] = self._of(verdicts)
        return bucket

    def add(self, bucket: Bucket, name: str) -> None:
        """Lay a node into one of our buckets."""
        was_empty = not bucket.names
        bucket.names.add(name)
        if was_empty:
            for count, rank in enumerate(bucket.ranks):
                if rank != NEVER:
                    self._occupied[count] |= 1 << rank

    def remove(self, bucket: Bucket, name: str) -> None:
        """Take a node out of one of our buckets, in which it lies."""
        bucket.names.remove(name)
        if bucket.names:
            return
        for count, rank in enumerate(bucket.ranks):
            if rank != NEVER and not any(
                other.names for other in self._by_rank[count][rank]
            ):
                self._occupied[count] &= ~(1 << rank)

    def best(self, count: int, avoid: Container[str]) -> tuple[str, int] | None:
        """The first name outside `avoid` of the best rank that has one, and the rank.

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
                for bucket in self._by_rank[count][rank]
                if (head := _first_outside(bucket.names, avoid)) is not None
            ]
            if heads:
                return min(heads), rank
            left &= left - 1
        return None

    def buckets(self) -> list[Bucket]:
        """Those that have nodes."""
        return [bucket for bucket in self._buckets.values() if bucket.names]

    def _of(self, verdicts: _Verdicts) -> Bucket:
        bucket = self._buckets.get(verdicts)
        if bucket is None:
            bucket = self._buckets[verdicts] = Bucket(self.product, *verdicts)
            for count, rank in enumerate(bucket.ranks):
                if rank != NEVER:
                    self._by_rank[count].setdefault(rank, []).append(bucket)
        return bucket


def _verdicts(
    product: Product, barred: Reason | None, healthy: int, free: int
) -> _Verdicts:
    counts = range(product.chip_count + 1)
    reasons = tuple(
        barred or chips.why_not(product, free, healthy, count) for count in counts
    )
    keys = [scoring.rank(product, healthy, free, count) for count in counts]
    ranks = tuple(
        NEVER if reason or key is None else scoring.number(product, key)
        for reason, key in zip(reasons, keys, strict=True)
    )
    return ranks, reasons


def _first_outside(names: SortedNames, avoid: Container[str]) -> str | None:
    return next((name for name in names if name not in avoid), None)
