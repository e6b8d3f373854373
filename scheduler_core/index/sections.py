"""Sections of the index: the nodes that one row serves.

A home section has the nodes of the row itself. A guest section has nodes of other
rows that can serve it too. They are separate because a query for a resource reads
home sections only, while a query for a row reads both.
"""

from collections.abc import Container, Sequence

from scheduler_core.index.buckets import NEVER, Bucket, RowBuckets
from scheduler_core.index.counts import Census
from scheduler_core.node.state import NodeState
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product


class Section:
    """Home nodes or guest nodes of one row, in buckets."""

    __slots__ = ("_guests", "bucket_of", "buckets", "censuses", "row")

    def __init__(
        self, row: Product, bucket_of: dict[str, Bucket], *, guests: bool
    ) -> None:
        """Create an empty section.

        Args:
            row: Row by which its nodes serve.
            bucket_of: {name: bucket}, written by the section. Sections share it when
                no node can be in two of them.
            guests: Whether it takes nodes of other rows, and not those of `row`.
        """
        self.row = row
        self.buckets = RowBuckets(row)
        self.bucket_of = bucket_of
        #: censuses that count nodes of this section; each change updates them
        self.censuses: tuple[Census, ...] = ()
        self._guests = guests

    def is_home(self, product: Product) -> bool:
        """Return whether this section takes the nodes of `product` as their home."""
        same_row = product is self.row or distributed(product) is self.row
        return same_row and not self._guests

    def takes(self, state: NodeState) -> bool:
        """Return whether a node belongs to this section."""
        if state.product is self.row or distributed(state.product) is self.row:
            return not self._guests
        return self._guests and state.serves(self.row)

    def put(self, state: NodeState) -> None:
        """Add or update a node that belongs to this section."""
        bucket = self.buckets.bucket(state)
        old = self.bucket_of.get(state.name)
        if old is bucket:
            return
        self.buckets.move(old, bucket, state.name)
        self.bucket_of[state.name] = bucket
        for census in self.censuses:
            census.mark(state.name, able=bucket.rank(census.count) != NEVER)

    def put_all(self, state: NodeState, names: Sequence[str]) -> None:
        """Add or update nodes that are in one state but for name and taken chips.

        Args:
            state: Of any of them; it belongs to this section.
            names: Names of the nodes, each once.
        """
        bucket, bucket_of = self.buckets.bucket(state), self.bucket_of
        moved: dict[Bucket | None, list[str]] = {}
        for name in names:
            moved.setdefault(bucket_of.get(name), []).append(name)
        moved.pop(bucket, None)
        for old, from_old in moved.items():
            self.buckets.move_all(old, bucket, from_old)
            bucket_of.update(dict.fromkeys(from_old, bucket))
            for census in self.censuses:
                able = bucket.rank(census.count) != NEVER
                for name in from_old:
                    census.mark(name, able=able)

    def drop(self, name: str) -> None:
        """Remove a node of this section."""
        self.buckets.move(self.bucket_of.pop(name), None, name)
        for census in self.censuses:
            census.mark(name, able=False)


def best_of_sections(
    sections: Sequence[Section], count: int, avoid: Container[str]
) -> tuple[int, str] | None:
    """Return the best rank and its first name over sections of one row, or None."""
    if len(sections) == 1:
        return sections[0].buckets.best(count, avoid)
    heads = [
        head
        for section in sections
        if (head := section.buckets.best(count, avoid)) is not None
    ]
    return min(heads, default=None)
