"""The nodes that one row serves, as the index keeps them.

Nodes whose own row it is, and guests: nodes with another row that can serve it as
well. They lie apart, because whoever asks for a resource means nodes by their own
rows, while whoever asks for a row means both.
"""

from collections.abc import Container, Sequence

from scheduler_core.index.buckets import NEVER, Bucket, Shelf
from scheduler_core.index.counts import Census
from scheduler_core.node.state import NodeState
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product


class Section:
    """Nodes of one kind that serve one row, in buckets."""

    __slots__ = ("_guests", "bucket_of", "censuses", "row", "shelf")

    def __init__(
        self, row: Product, bucket_of: dict[str, Bucket], *, guests: bool
    ) -> None:
        """Begin without nodes.

        Args:
            row: The rule by which pods are served.
            bucket_of: Where to note each node's bucket; shared between sections of
                which no node can lie in two.
            guests: Whether it takes nodes that have another row of their own.
        """
        self.row = row
        self.shelf = Shelf(row)
        self.bucket_of = bucket_of
        #: whose nodes lie here, among others; they hear of every change
        self.censuses: tuple[Census, ...] = ()
        self._guests = guests

    def is_home(self, product: Product) -> bool:
        """Whether all nodes of that row, and only such, lie here."""
        own = product is self.row or distributed(product) is self.row
        return own and not self._guests

    def takes(self, state: NodeState) -> bool:
        """Whether a node lies here."""
        if state.product is self.row or distributed(state.product) is self.row:
            return not self._guests
        return self._guests and state.serves(self.row)

    def put(self, state: NodeState) -> None:
        """Take in a node that lies here, or what has become of it."""
        bucket = self.shelf.bucket(state)
        old = self.bucket_of.get(state.name)
        if old is bucket:
            return
        self.shelf.move(old, bucket, state.name)
        self.bucket_of[state.name] = bucket
        for census in self.censuses:
            census.mark(state.name, able=bucket.rank(census.count) != NEVER)

    def drop(self, name: str) -> None:
        """Forget a node that lies here."""
        self.shelf.move(self.bucket_of.pop(name), None, name)
        for census in self.censuses:
            census.mark(name, able=False)


def first(
    sections: Sequence[Section], count: int, avoid: Container[str]
) -> tuple[int, str] | None:
    """The best rank and its first name over sections of one row, or None."""
    if len(sections) == 1:
        return sections[0].shelf.best(count, avoid)
    heads = [
        head
        for section in sections
        if (head := section.shelf.best(count, avoid)) is not None
    ]
    return min(heads, default=None)
