"""Overlay on the index: the nodes as if pods were gone, or as if pods were placed.

It reads through: a changed node answers by its own state, any other by the index.
"""

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress

from scheduler_core.index.buckets import NEVER, Bucket
from scheduler_core.index.counts import Census, Groups
from scheduler_core.index.queries import NodeIndex, rank_names
from scheduler_core.node.state import NodeState, resource_of
from scheduler_core.products.columns import Product

#: answers of the changed nodes to a query, {name: bucket}; None for a node that does
#: not serve
_Buckets = Mapping[str, Bucket | None]


class Overlay(NodeIndex):
    """Nodes of an index, some of them in other states; an overlay may lie on another.

    The index is not changed. A later change of it shows through, but not at the nodes
    of the overlay.

    Cost:
        To create: a step for each changed node. A query over all nodes: that of the
        index, and a few steps for each changed node. A query with `names`: that of
        the index, and a look-up for each name.
    """

    __slots__ = ("_base", "_buckets", "_states")

    def __init__(self, base: NodeIndex, states: Iterable[NodeState]) -> None:
        """Lay node states on an index.

        Args:
            base: Index, or another overlay.
            states: Of changed and of added nodes; may be empty. Of two with the same
                name and resource, the later one counts.
        """
        self._base = base
        #: {resource: {name: changed node}}
        self._states: dict[str, dict[str, NodeState]] = {}
        #: {(wanted, in network): buckets of the changed nodes}, from the first query
        self._buckets: dict[tuple[Product | str, bool], _Buckets] = {}
        for state in states:
            self._states.setdefault(state.product.resource, {})[state.name] = state

    def nodes(self, wanted: Product | str) -> Mapping[str, NodeState]:
        """Return {name: node} of the nodes with chips of a resource, as a live view."""
        nodes = self._base.nodes(wanted)
        changed = self._states.get(resource_of(wanted))
        return ChainMap(changed, nodes) if changed else nodes  # type: ignore[arg-type]  # read only

    def has_node(self, name: str) -> bool:
        """Return whether a node with this name has chips of any resource."""
        changed = any(name in nodes for nodes in self._states.values())
        return changed or self._base.has_node(name)

    def rank(
        self, wanted: Product | str, count: int, name: str, *, in_network: bool = False
    ) -> tuple[str, int]:
        """Return the key of the row by which a node serves, and its rank."""
        changed = self._changed(wanted, in_network=in_network)
        if name not in changed:
            return self._base.rank(wanted, count, name, in_network=in_network)
        for row, rank, _ in rank_names((name,), (changed[name],), count):
            return row.key, rank
        raise KeyError(name)

    def census(
        self,
        groups: Groups,
        wanted: Product | str,
        count: int,
        *,
        in_network: bool = False,
    ) -> Census:
        """Return the census of the nodes of each leaf or SuperPoD that can take a pod.

        Returns:
            A copy of the census of the index, if nodes are changed.

        Cost:
            That of the index, and a step for each site and changed node.
        """
        census = self._base.census(groups, wanted, count, in_network=in_network)
        changed = self._changed(wanted, in_network=in_network)
        if not changed:
            return census
        census = census.copy()
        for name, bucket in changed.items():
            able = bucket is not None and bucket.rank(count) != NEVER
            census.mark(name, able=able)
        return census

    def bucket(self, state: NodeState, row: Product) -> Bucket:
        """Return the answers of a node in this state by a row that it can serve by."""
        return self._base.bucket(state, row)

    def buckets(
        self, wanted: Product | str, names: Sequence[str], *, in_network: bool
    ) -> Sequence[Bucket | None]:
        """Return the bucket of each node; None for nodes that do not serve `wanted`."""
        buckets = self._base.buckets(wanted, names, in_network=in_network)
        changed = self._changed(wanted, in_network=in_network)
        if not changed:
            return buckets
        buckets = list(buckets)
        for index in compress(range(len(names)), map(changed.__contains__, names)):
            buckets[index] = changed[names[index]]
        return buckets

    def _ranked_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Iterator[tuple[Product, int, str]]:
        changed = self._changed(wanted, in_network=in_network)
        ranked = iter(rank_names(changed, changed.values(), count))
        first = next(ranked, None)
        for item in self._base.ranked(wanted, count, in_network=in_network):
            if item[2] in changed:
                continue
            while first is not None and _sort_key(first) < _sort_key(item):
                yield first
                first = next(ranked, None)
            yield item
        if first is not None:
            yield first
            yield from ranked

    def _refusals_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Counter[str]:
        base = self._base
        tally = Counter(dict(base.refusals(wanted, count, in_network=in_network)))
        names: set[str] = set().union(*self._states.values())
        before = [name for name in names if base.has_node(name)]
        for index, some, sign in ((base, before, -1), (self, names, 1)):
            for text, nodes in index.refusals(
                wanted, count, names=some, in_network=in_network
            ):
                tally[text] += sign * nodes
        return tally

    def _changed(self, wanted: Product | str, *, in_network: bool) -> _Buckets:
        """Return the buckets of the changed nodes."""
        changed = self._buckets.get((wanted, in_network))
        if changed is None:
            states = self._states.get(resource_of(wanted), {})
            changed = self._buckets[wanted, in_network] = {
                name: None if row is None else self.bucket(state, row)
                for name, state in states.items()
                for row in (state.row_for(wanted, in_network=in_network),)
            }
        return changed


def _sort_key(item: tuple[Product, int, str]) -> tuple[str, int, str]:
    row, rank, name = item
    return row.key, rank, name
