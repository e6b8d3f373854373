"""Which node is best for a count, without looking at every node.

Nodes that give the same answer to every count lie in one bucket, so that a decision
looks at buckets, of which there are a few dozen, and takes the first name of the
best. The index is the core's one mutable value: it belongs to whoever keeps it up to
date, one thread only.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, compress

from scheduler_core.index.buckets import NEVER, NO_SUCH_NPU, Bucket
from scheduler_core.index.counts import Census, Censuses, Groups
from scheduler_core.index.queries import Found, Survey, graded, parted, refused_by
from scheduler_core.index.sections import Section, first
from scheduler_core.node.state import NodeState, resource_of
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product

__all__ = ["Cluster", "Found", "NodeState", "Survey"]


class Cluster:
    """All nodes with NPUs, indexed.

    A node with chips of several resources is there once for each.

    What is wanted is said as a resource, then each node serves by its own row; or as
    a row, then every node that can serve by that one does. With `in_network` the job
    has several pods that talk over the network (`columns.distributed`).

    Cost:
        `put` and `drop`: one node's chips for each row that was asked for, whatever
        the size. `best` over all nodes: one bucket. Anything with `names`: a look-up
        for each name. The first question for a row looks at all nodes once.
    """

    __slots__ = (
        *("_asked", "_censuses", "_further", "_guests", "_lying", "_own"),
        *("_sections", "_states"),
    )

    def __init__(self, states: Iterable[NodeState] = ()) -> None:
        """Begin with these nodes; of two with one name and resource, the later."""
        #: {resource: {name: node}}
        self._states: dict[str, dict[str, NodeState]] = {}
        #: how often a node is there for one more resource than its first
        self._further = 0
        #: {(resource, in network): {name: bucket by the node's own row}}
        self._lying: dict[tuple[str, bool], dict[str, Bucket]] = {}
        #: {row that nodes have or had, in the order they came: where they all lie}
        self._own: dict[Product, list[Section]] = {}
        #: {resource: sections of guests}, where some of its nodes lie as well
        self._guests: dict[str, list[Section]] = {}
        #: {resource: {(row, whether of guests): its nodes}}
        self._sections: dict[str, dict[tuple[Product, bool], Section]] = {}
        #: {what was wanted: sections by row, in the order in which rows are tried}
        self._asked: dict[tuple[Product | str, bool], list[list[Section]]] = {}
        #: of the same sections; a new row changes what they count, so it ends them
        self._censuses = Censuses()
        for state in states:
            self.put(state)

    def __len__(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self._states.values())) - self._further

    def __iter__(self) -> Iterator[NodeState]:
        """All nodes, by name; one of several resources once for each, by these."""
        lines = [self._states[resource] for resource in sorted(self._states)]
        return (line[name] for name in self.names for line in lines if name in line)

    @property
    def names(self) -> list[str]:
        """The names of all nodes, in order."""
        return sorted(frozenset().union(*self._states.values()))

    def line(self, wanted: Product | str) -> Mapping[str, NodeState]:
        """{name: node} of the nodes with chips of a resource, as they are from now on.

        Args:
            wanted: The Kubernetes resource, or a row of it.
        """
        return self._states.setdefault(resource_of(wanted), {})

    def put(self, state: NodeState) -> None:
        """Take in a node, or what has become of it."""
        name, product = state.name, state.product
        line = self._states.setdefault(product.resource, {})
        old = line.get(name)
        if old is not None and (
            old.product is not product or old.inventory != state.inventory
        ):
            self.drop(name, product)
        homes = self._own.get(product)
        if homes is None:
            homes = self._move_in(product)
        if name not in line:
            self._further += self._is_known(name)
        line[name] = state
        for section in homes:
            section.put(state)
        for section in self._guests.get(product.resource, ()):
            if section.takes(state):
                section.put(state)

    def drop(self, name: str, wanted: Product | str) -> None:
        """Forget a node's chips of a resource; nothing happens when it is not known."""
        state = self._states.get(resource_of(wanted), {}).pop(name, None)
        if state is not None:
            self._further -= self._is_known(name)
            for section in self._sections[state.product.resource].values():
                if section.takes(state):
                    section.drop(name)

    def _is_known(self, name: str) -> bool:
        return any(name in line for line in self._states.values())

    def _move_in(self, product: Product) -> list[Section]:
        """Make room for nodes of a row that no node had before."""
        self._asked.clear()
        self._censuses.clear()
        self._watch()
        sections = self._sections.get(product.resource, {}).values()
        self._own[product] = [each for each in sections if each.is_home(product)]
        self._section(product, guests=False)
        return self._own[product]

    def best(
        self,
        wanted: Product | str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        avoid: Container[str] = (),
        in_network: bool = False,
    ) -> Found | None:
        """The best node for `count` chips, of equals the one with the first name.

        Nodes with different rows of one resource are tried in the order of the rows'
        keys.

        Args:
            wanted: The Kubernetes resource, or a row.
            count: Chips wanted by the whole pod.
            names: Only these nodes, in any order; None is all.
            avoid: Not these nodes.
            in_network: Whether the pod's job has several pods.
        """
        if names is not None:
            asked = [name for name in names if name not in avoid]
            lying = self._buckets(wanted, asked, in_network=in_network)
            least, best, _ = graded(set(lying), count)
            if least is None:
                return None
            name = min(compress(asked, map(best.__contains__, lying)))
            row = next(iter(best)).product
            return Found(node=self.line(row)[name], row=row, rank=least)
        for sections in self._rows(wanted, in_network=in_network):
            head = first(sections, count, avoid)
            if head is not None:
                rank, name = head
                row = sections[0].row
                return Found(node=self.line(row)[name], row=row, rank=rank)
        return None

    def ranked(
        self,
        wanted: Product | str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        in_network: bool = False,
    ) -> Iterator[tuple[Product, int, str]]:
        """Every node that can serve: its row, how good it is, its name; best first.

        To be read before the index changes again. Arguments as for `best`.

        Cost:
            A step for each node that is read; with `names`, sorting them first.
        """
        rows = self._rows(wanted, in_network=in_network)
        if names is not None:
            asked = tuple(names)
            lying = self._buckets(wanted, asked, in_network=in_network)
            some = [
                (bucket.product.key, rank, name, bucket.product)
                for name, bucket in zip(asked, lying, strict=True)
                if bucket is not None and (rank := bucket.rank(count)) != NEVER
            ]
            for _, rank, name, row in sorted(some, key=lambda item: item[:3]):
                yield row, rank, name
            return
        for sections in rows:
            heads = [section.shelf.ranked(count) for section in sections]
            for rank, name in heads[0] if len(heads) == 1 else merge(*heads):
                yield sections[0].row, rank, name

    def survey(
        self,
        wanted: Product | str,
        count: int,
        names: Iterable[str],
        *,
        avoid: Container[str] = (),
        in_network: bool = False,
    ) -> Survey:
        """What each of these nodes can do for `count` chips.

        Args:
            wanted: The Kubernetes resource, or a row.
            count: Chips wanted by the whole pod.
            names: Nodes to look at, each once; unknown ones are refused.
            avoid: Those of them that are refused although they could serve.
            in_network: Whether the pod's job has several pods.

        Cost:
            A look-up for each name, a few steps for each bucket that they lie in.
        """
        asked, shunned = parted(names, avoid)
        lying = self._buckets(wanted, asked, in_network=in_network)
        buckets = set(lying)
        _, first, second = graded(buckets, count)
        refusals = {
            bucket: refused_by(bucket, count) for bucket in buckets - first - second
        }
        refused = {
            name: refusals[bucket]
            for name, bucket in zip(asked, lying, strict=True)
            if bucket in refusals
        }
        out = self._buckets(wanted, shunned, in_network=in_network)
        for name, bucket in zip(shunned, out, strict=True):
            if bucket not in refusals:  # one that can serve: its nodes share one text
                refusals[bucket] = refused_by(bucket, count)
            refused[name] = refusals[bucket]
        return Survey(
            best=tuple(compress(asked, map(first.__contains__, lying))),
            worse=tuple(compress(asked, map(second.__contains__, lying))),
            refused=refused,
        )

    def refusals(
        self,
        wanted: Product | str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        in_network: bool = False,
    ) -> tuple[tuple[str, int], ...]:
        """Why none of these nodes serves: texts with counts of nodes.

        To be asked when `best` has found none with the same arguments; a node that
        could serve was to be avoided then.

        Returns:
            The most frequent first, then by text; the counts add up to the nodes.
        """
        tally: Counter[str] = Counter()
        if names is None:
            for sections in self._rows(wanted, in_network=in_network):
                for section in sections:
                    for why, nodes in section.shelf.refusals(count):
                        tally[why.text] += nodes
            tally[NO_SUCH_NPU.text] += len(self) - tally.total()
        else:
            lying = self._buckets(wanted, tuple(names), in_network=in_network)
            for place, nodes in Counter(lying).items():
                tally[refused_by(place, count).text] += nodes
        said = [(text, nodes) for text, nodes in tally.items() if nodes]
        return tuple(sorted(said, key=lambda item: (-item[1], item[0])))

    def rank(
        self, wanted: Product | str, count: int, name: str, *, in_network: bool = False
    ) -> tuple[str, int]:
        """How good a node is that can serve: the key of its row, and its rank.

        Raises:
            KeyError: It cannot.
        """
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
        """Which nodes of each leaf or SuperPoD can take a pod.

        Args:
            groups: The nodes of each site, by position.
            wanted: The Kubernetes resource, or a row.
            count: Chips wanted by the whole pod.
            in_network: Whether the pod's job has several pods.

        Returns:
            What is kept up to date from now on: to be read before the index changes
            again, and not to be changed.

        Cost:
            None the next time, or a step for each site when `groups` is another
            object; the first time for a question a step for each node.
        """
        sites, kept = self._censuses.of(groups)
        question = wanted, count, in_network
        census = kept.get(question)
        if census is None:
            sections = chain.from_iterable(self._rows(wanted, in_network=in_network))
            able = (name for each in sections for _, name in each.shelf.ranked(count))
            census = Census(sites, count, able)
            self._censuses.keep(question, census)
            self._watch()
        return census

    def _watch(self) -> None:
        """Let every section know the censuses that count its nodes."""
        counting: dict[Section, list[Census]] = {}
        for (wanted, _, in_network), census in self._censuses:
            for section in chain.from_iterable(
                self._rows(wanted, in_network=in_network)
            ):
                counting.setdefault(section, []).append(census)
        for sections in self._sections.values():
            for section in sections.values():
                section.censuses = tuple(counting.get(section, ()))

    def _rows(
        self, wanted: Product | str, *, in_network: bool
    ) -> Sequence[Sequence[Section]]:
        """Sections of those that serve, one list for each row."""
        rows = self._asked.get((wanted, in_network))
        if rows is None:
            rows = self._find_rows(wanted, in_network=in_network)
            self._asked[wanted, in_network] = rows
        return rows

    def _find_rows(
        self, wanted: Product | str, *, in_network: bool
    ) -> list[list[Section]]:
        if isinstance(wanted, Product):
            row = distributed(wanted) if in_network else wanted
            return [[self._section(row, guests=guests) for guests in (False, True)]]
        own = [product for product in self._own if product.resource == wanted]
        rows = [distributed(product) if in_network else product for product in own]
        rows.sort(key=lambda row: row.key)
        return [[self._section(row, guests=False)] for row in rows]

    def _section(self, row: Product, *, guests: bool) -> Section:
        """That section; made, from all nodes, when it is asked for first."""
        sections = self._sections.setdefault(row.resource, {})
        section = sections.get((row, guests))
        if section is None:
            kind = row.resource, row.for_distributed
            bucket_of = {} if guests else self._lying.setdefault(kind, {})
            section = sections[row, guests] = Section(row, bucket_of, guests=guests)
            if guests:
                self._guests.setdefault(row.resource, []).append(section)
            for product, homes in self._own.items():
                if section.is_home(product):
                    homes.append(section)
            for state in self._states.get(row.resource, {}).values():
                if section.takes(state):
                    section.put(state)
        return section

    def _buckets(
        self, wanted: Product | str, names: Sequence[str], *, in_network: bool
    ) -> Sequence[Bucket | None]:
        """The bucket of each node, None for those that do not serve such jobs."""
        sections = [
            section
            for of_row in self._rows(wanted, in_network=in_network)
            for section in of_row
            if section.bucket_of
        ]
        rows = {section.row for section in sections}
        dicts = {id(section.bucket_of): section.bucket_of for section in sections}
        found: list[Bucket | None] = [None] * len(names)
        for bucket_of in dicts.values():
            lying = list(map(bucket_of.get, names))
            alien = {each for each in set(lying) if each and each.product not in rows}
            if alien or len(dicts) > 1:
                lying = [
                    known if bucket in alien else bucket or known
                    for bucket, known in zip(lying, found, strict=True)
                ]
            found = lying
        return found
