"""Index of all nodes with NPUs, which finds the best node for a count of chips.

Nodes with the same answer to every count are in one bucket. A decision looks at a few
dozen buckets and takes the first name of the best one. The index is the only mutable
value of the core; one thread owns and updates it.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, compress

from scheduler_core.index.buckets import NEVER, NO_SUCH_NPU, Bucket
from scheduler_core.index.counts import Census, Censuses, Groups
from scheduler_core.index.queries import BestNode, NodeIndex, Survey
from scheduler_core.index.sections import Section, best_of_sections
from scheduler_core.node.state import NodeState, resource_of
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product

__all__ = ["BestNode", "Cluster", "NodeState", "Survey"]


class Cluster(NodeIndex):
    """Mutable index of all nodes with NPUs.

    A node with chips of several resources has one entry for each.

    Cost:
        `put` and `drop`: one node's chips for each queried row, whatever the size of
        the cluster. `best` over all nodes: one bucket.
    """

    __slots__ = (
        *("_censuses", "_extra_entries", "_guests", "_home_buckets", "_homes"),
        *("_query_rows", "_sections", "_states"),
    )

    def __init__(self, states: Iterable[NodeState] = ()) -> None:
        """Create an index of nodes.

        Args:
            states: Of two with the same name and resource, the later one counts.
        """
        #: {resource: {name: node}}
        self._states: dict[str, dict[str, NodeState]] = {}
        #: number of entries of nodes beyond the first entry of each
        self._extra_entries = 0
        #: {(resource, in network): {name: bucket by the node's own row}}
        self._home_buckets: dict[tuple[str, bool], dict[str, Bucket]] = {}
        #: {row of past or present nodes, oldest first: sections with all its nodes}
        self._homes: dict[Product, list[Section]] = {}
        #: {resource: guest sections}, which have some of its nodes too
        self._guests: dict[str, list[Section]] = {}
        #: {resource: {(row, whether of guests): section}}
        self._sections: dict[str, dict[tuple[Product, bool], Section]] = {}
        #: {(wanted, in network): sections by row, in the order of trying rows}
        self._query_rows: dict[tuple[Product | str, bool], list[list[Section]]] = {}
        #: censuses over these sections; a new row clears them, because they lack it
        self._censuses = Censuses()
        for state in states:
            self.put(state)

    def __len__(self) -> int:
        """Return the number of nodes, each counted once."""
        return sum(map(len, self._states.values())) - self._extra_entries

    def __iter__(self) -> Iterator[NodeState]:
        """Yield all entries by name, those of one node by resource."""
        entries = [self._states[resource] for resource in sorted(self._states)]
        return (
            nodes[name] for name in self.names for nodes in entries if name in nodes
        )

    @property
    def names(self) -> list[str]:
        """Names of all nodes, ascending."""
        return sorted(frozenset().union(*self._states.values()))

    def nodes(self, wanted: Product | str) -> Mapping[str, NodeState]:
        """Return {name: node} of the nodes with chips of a resource, as a live view."""
        return self._states.setdefault(resource_of(wanted), {})

    def put(self, state: NodeState) -> None:
        """Add a node's entry for a resource, or replace it."""
        name, product = state.name, state.product
        nodes = self._states.setdefault(product.resource, {})
        old = nodes.get(name)
        if old is not None and (
            old.product is not product or old.inventory != state.inventory
        ):
            self.drop(name, product)
        homes = self._homes.get(product)
        if homes is None:
            homes = self._add_row(product)
        if name not in nodes:
            self._extra_entries += self.has_node(name)
        nodes[name] = state
        for section in homes:
            section.put(state)
        for section in self._guests.get(product.resource, ()):
            if section.takes(state):
                section.put(state)

    def put_all(self, states: Iterable[NodeState]) -> None:
        """Add or replace entries, each of another node or resource.

        Cost:
            For nodes whose free chips have changed: a few steps for each, and one
            `put` for each of their distinct states.
        """
        known: list[NodeState] = []
        for state in states:
            nodes = self._states.get(state.product.resource, {})
            old = nodes.get(state.name)
            if (
                old is None
                or old.product is not state.product
                or old.inventory != state.inventory
            ):
                self.put(state)
            else:
                nodes[state.name] = state
                known.append(state)
        for alike, names in _group_alike(known):
            for section in self._homes[alike.product]:
                section.put_all(alike, names)
            for section in self._guests.get(alike.product.resource, ()):
                if section.takes(alike):
                    section.put_all(alike, names)

    def drop(self, name: str, wanted: Product | str) -> None:
        """Remove a node's entry for a resource; do nothing when there is none."""
        state = self._states.get(resource_of(wanted), {}).pop(name, None)
        if state is not None:
            self._extra_entries -= self.has_node(name)
            for section in self._sections[state.product.resource].values():
                if section.takes(state):
                    section.drop(name)

    def has_node(self, name: str) -> bool:
        """Return whether a node with this name has chips of any resource."""
        return any(name in nodes for nodes in self._states.values())

    def _add_row(self, product: Product) -> list[Section]:
        """Create sections for a row without past or present nodes; return its homes."""
        self._query_rows.clear()
        self._censuses.clear()
        self._connect_censuses()
        sections = self._sections.get(product.resource, {}).values()
        self._homes[product] = [
            section for section in sections if section.is_home(product)
        ]
        self._section(product, guests=False)
        return self._homes[product]

    def _best_of_all(
        self,
        wanted: Product | str,
        count: int,
        avoid: Container[str],
        *,
        in_network: bool,
    ) -> BestNode | None:
        for sections in self._rows(wanted, in_network=in_network):
            head = best_of_sections(sections, count, avoid)
            if head is not None:
                rank, name = head
                row = sections[0].row
                return BestNode(node=self.nodes(row)[name], row=row, rank=rank)
        return None

    def best_class(
        self,
        resource: str,
        count: int,
        names: Sequence[str],
        *,
        avoid: Container[str] = (),
    ) -> tuple[str, ...]:
        """Return the nodes that `survey` calls best, without a verdict on the others.

        Args:
            resource: The Kubernetes resource.
            count: Chips of the whole pod.
            names: Nodes to look at, each once; unknown ones are ignored.
            avoid: Nodes to leave out.

        Returns:
            In the order of `names`; () if none can serve.

        Cost:
            A step for each node of the best rank and of better ones.
        """
        asked = frozenset(names)
        for (section,) in self._rows(resource, in_network=False):
            best = section.buckets.best_among(count, asked, avoid)
            if best:
                return tuple(compress(names, map(best.__contains__, names)))
        return ()

    def _ranked_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Iterator[tuple[Product, int, str]]:
        for sections in self._rows(wanted, in_network=in_network):
            heads = [section.buckets.ranked(count) for section in sections]
            for rank, name in heads[0] if len(heads) == 1 else merge(*heads):
                yield sections[0].row, rank, name

    def _refusals_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Counter[str]:
        tally: Counter[str] = Counter()
        for sections in self._rows(wanted, in_network=in_network):
            for section in sections:
                for refusal, nodes in section.buckets.refusals(count):
                    tally[refusal.text] += nodes
        tally[NO_SUCH_NPU.text] += len(self) - tally.total()
        return tally

    def rank(
        self, wanted: Product | str, count: int, name: str, *, in_network: bool = False
    ) -> tuple[str, int]:
        """Return the key of the row by which a node serves, and its rank."""
        for sections in self._rows(wanted, in_network=in_network):
            for section in sections:
                bucket = section.bucket_of.get(name)
                if bucket is not None and bucket.product is section.row:
                    rank = bucket.rank(count)
                    if rank != NEVER:
                        return section.row.key, rank
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

        Cost:
            The first query: a step for each node. Later ones: none, or a step for
            each site when `groups` is an equal but different object.
        """
        sites, censuses = self._censuses.get(groups)
        question = wanted, count, in_network
        census = censuses.get(question)
        if census is None:
            sections = chain.from_iterable(self._rows(wanted, in_network=in_network))
            able = (
                name
                for section in sections
                for _, name in section.buckets.ranked(count)
            )
            census = Census(sites, count, able)
            self._censuses.add(question, census)
            self._connect_censuses()
        return census

    def _connect_censuses(self) -> None:
        """Give every section the censuses that count its nodes."""
        censuses_of: dict[Section, list[Census]] = {}
        for (wanted, _, in_network), census in self._censuses:
            for section in chain.from_iterable(
                self._rows(wanted, in_network=in_network)
            ):
                censuses_of.setdefault(section, []).append(census)
        for sections in self._sections.values():
            for section in sections.values():
                section.censuses = tuple(censuses_of.get(section, ()))

    def _rows(
        self, wanted: Product | str, *, in_network: bool
    ) -> Sequence[Sequence[Section]]:
        """Return the sections of the nodes that serve, one list for each row."""
        rows = self._query_rows.get((wanted, in_network))
        if rows is None:
            rows = self._find_rows(wanted, in_network=in_network)
            self._query_rows[wanted, in_network] = rows
        return rows

    def _find_rows(
        self, wanted: Product | str, *, in_network: bool
    ) -> list[list[Section]]:
        if isinstance(wanted, Product):
            row = distributed(wanted) if in_network else wanted
            return [[self._section(row, guests=guests) for guests in (False, True)]]
        products = [product for product in self._homes if product.resource == wanted]
        rows = [distributed(product) if in_network else product for product in products]
        rows.sort(key=lambda row: row.key)
        return [[self._section(row, guests=False)] for row in rows]

    def _section(self, row: Product, *, guests: bool) -> Section:
        """Return a section; create it from all nodes at the first call."""
        sections = self._sections.setdefault(row.resource, {})
        section = sections.get((row, guests))
        if section is None:
            kind = row.resource, row.for_distributed
            bucket_of = {} if guests else self._home_buckets.setdefault(kind, {})
            section = sections[row, guests] = Section(row, bucket_of, guests=guests)
            if guests:
                self._guests.setdefault(row.resource, []).append(section)
            for product, homes in self._homes.items():
                if section.is_home(product):
                    homes.append(section)
            for alike, names in _group_alike(
                self._states.get(row.resource, {}).values()
            ):
                if section.takes(alike):
                    section.put_all(alike, names)
        return section

    def bucket(self, state: NodeState, row: Product) -> Bucket:
        """Return the answers of a node in this state by a row that it can serve by."""
        return self._section(row, guests=False).buckets.bucket(state)

    def buckets(
        self, wanted: Product | str, names: Sequence[str], *, in_network: bool
    ) -> Sequence[Bucket | None]:
        """Return the bucket of each node; None for nodes that do not serve `wanted`."""
        sections = [
            section
            for row_sections in self._rows(wanted, in_network=in_network)
            for section in row_sections
            if section.bucket_of
        ]
        rows = {section.row for section in sections}
        dicts = {id(section.bucket_of): section.bucket_of for section in sections}
        result: list[Bucket | None] = [None] * len(names)
        for bucket_of in dicts.values():
            buckets = list(map(bucket_of.get, names))
            # A shared dict may name buckets of rows that do not serve `wanted`.
            others = {
                bucket
                for bucket in set(buckets)
                if bucket and bucket.product not in rows
            }
            if others or len(dicts) > 1:
                buckets = [
                    previous if bucket in others else bucket or previous
                    for bucket, previous in zip(buckets, result, strict=True)
                ]
            result = buckets
        return result


def _group_alike(
    states: Iterable[NodeState],
) -> Iterable[tuple[NodeState, Sequence[str]]]:
    """Return a state of each kind but for name and taken chips, and all their names."""
    groups: dict[tuple[object, ...], tuple[NodeState, list[str]]] = {}
    for state in states:
        key = (
            *(state.product, state.barred, state.inventory, state.healthy),
            *(state.free, state.network_unhealthy),
        )
        group = groups.get(key)
        if group is None:
            groups[key] = state, [state.name]
        else:
            group[1].append(state.name)
    return groups.values()
