"""Which node is best for a count, without looking at every node.

Nodes of one product that give the same answer to every count lie in one bucket, so
that a decision looks at buckets, of which there are a few dozen, and takes the first
name of the best. The index is the core's one mutable value: it belongs to whoever
keeps it up to date, one thread only.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from scheduler_core.buckets import NEVER, NO_SUCH_NPU, Bucket, Shelf
from scheduler_core.products import Product
from scheduler_core.reasons import Reason, Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node at one moment. Masks of physical ids; free ⊆ healthy ⊆ inventory."""

    name: str
    product: Product
    #: chips that the node has
    inventory: int
    healthy: int
    free: int
    #: why nothing goes to this node whatever is free, or None
    barred: Reason | None = None

    def __post_init__(self) -> None:
        """Refuse a node that cannot be.

        Raises:
            ValueError: The masks do not lie in each other.
        """
        if (
            self.free & ~self.healthy
            or self.healthy & ~self.inventory
            or self.inventory & ~self.product.all_chips
        ):
            raise ValueError(
                f"node {self.name!r}: expected free within healthy within inventory "
                f"within {self.product.chip_count} chips, found {self.free:#b}, "
                f"{self.healthy:#b}, {self.inventory:#b}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best node for a count."""

    node: NodeState
    #: how good it is (`scoring.number`)
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a list of nodes can do for a count. Every node is in exactly one part."""

    #: equally good and better than all others, in the order they were asked
    best: tuple[str, ...]
    #: could serve, but are not the best, in the order they were asked
    worse: tuple[str, ...]
    #: {name: why it cannot serve}
    refused: Mapping[str, Refusal]


class Cluster:
    """All nodes with NPUs, indexed.

    Cost:
        `put` and `drop`: one node's chips, whatever the size. `best` over all nodes:
        one bucket. Anything with `names`: a look-up for each name.
    """

    __slots__ = ("_bucket_of", "_of_resource", "_shelves", "_states")

    def __init__(self, states: Iterable[NodeState] = ()) -> None:
        """Begin with these nodes; of two with one name, the later."""
        self._states: dict[str, NodeState] = {}
        self._bucket_of: dict[str, Bucket] = {}
        #: {key of a product: its buckets}
        self._shelves: dict[str, Shelf] = {}
        #: {resource: its products' buckets, by key}
        self._of_resource: dict[str, tuple[Shelf, ...]] = {}
        for state in states:
            self.put(state)

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self._states)

    def __iter__(self) -> Iterator[NodeState]:
        """All nodes, by name."""
        return (self._states[name] for name in sorted(self._states))

    def get(self, name: str) -> NodeState | None:
        """The node of that name, or None."""
        return self._states.get(name)

    def put(self, state: NodeState) -> None:
        """Take in a node, or what has become of it."""
        name = state.name
        shelf = self._shelves.get(state.product.key) or self._shelf(state.product)
        bucket = shelf.bucket(state.barred, state.healthy, state.free)
        old = self._bucket_of.get(name)
        self._states[name] = state
        if old is bucket:
            return
        if old is not None:
            self._shelves[old.product.key].remove(old, name)
        shelf.add(bucket, name)
        self._bucket_of[name] = bucket

    def drop(self, name: str) -> None:
        """Forget a node; nothing happens when it is not known."""
        bucket = self._bucket_of.pop(name, None)
        if bucket is not None:
            self._shelves[bucket.product.key].remove(bucket, name)
            del self._states[name]

    def best(
        self,
        resource: str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        avoid: Container[str] = (),
    ) -> Found | None:
        """The best node for `count` chips, of equals the one with the first name.

        Products of one resource are tried in the order of their keys.

        Args:
            resource: The Kubernetes resource.
            count: Chips wanted by the whole pod.
            names: Only these nodes, in any order; None is all.
            avoid: Not these nodes.
        """
        if names is not None:
            survey = self.survey(resource, count, names, avoid=avoid)
            if not survey.best:
                return None
            name = min(survey.best)
            return Found(
                node=self._states[name],
                rank=self._bucket_of[name].rank(resource, count),
            )
        for shelf in self._of_resource.get(resource, ()):
            head = shelf.best(count, avoid)
            if head is not None:
                return Found(node=self._states[head[0]], rank=head[1])
        return None

    def survey(
        self,
        resource: str,
        count: int,
        names: Iterable[str],
        *,
        avoid: Container[str] = (),
    ) -> Survey:
        """What each of these nodes can do for `count` chips.

        Args:
            resource: The Kubernetes resource.
            count: Chips wanted by the whole pod.
            names: Nodes to look at, each once; unknown ones are refused.
            avoid: Those of them that are refused although they could serve.

        Cost:
            A look-up for each name, a few steps for each bucket that they lie in.
        """
        asked, shunned = _parted(names, avoid)
        lying = list(map(self._bucket_of.get, asked))
        buckets = set(lying)
        ranks = {
            bucket: (bucket.product.key, rank)
            for bucket in buckets
            if bucket is not None and (rank := bucket.rank(resource, count)) != NEVER
        }
        best = min(ranks.values(), default=None)
        first = {bucket for bucket in ranks if ranks[bucket] == best}
        second = ranks.keys() - first
        refusals = {
            bucket: _refusal(bucket, resource, count)
            for bucket in buckets - ranks.keys()
        }
        refused = {
            name: refusals[bucket]
            for name, bucket in zip(asked, lying, strict=True)
            if bucket in refusals
        }
        for name in shunned:
            bucket = self._bucket_of.get(name)
            if bucket not in refusals:  # one that can serve: its nodes share one text
                refusals[bucket] = _refusal(bucket, resource, count)
            refused[name] = refusals[bucket]
        return Survey(
            best=tuple(compress(asked, map(first.__contains__, lying))),
            worse=tuple(compress(asked, map(second.__contains__, lying))),
            refused=refused,
        )

    def refusals(
        self, resource: str, count: int, *, names: Iterable[str] | None = None
    ) -> tuple[tuple[str, int], ...]:
        """Why none of these nodes serves: texts with counts of nodes.

        To be asked when `best` has found none with the same arguments; a node that
        could serve was to be avoided then.

        Returns:
            The most frequent first, then by text; the counts add up to the nodes.
        """
        tally: Counter[str] = Counter()
        if names is None:
            for shelf in self._shelves.values():
                for bucket in shelf.buckets():
                    text = bucket.refusal(resource, count).text
                    tally[text] += len(bucket.names)
        else:
            lying = map(self._bucket_of.get, names)
            tally.update(_refusal(bucket, resource, count).text for bucket in lying)
        return tuple(sorted(tally.items(), key=lambda item: (-item[1], item[0])))

    def _shelf(self, product: Product) -> Shelf:
        shelf = self._shelves[product.key] = Shelf(product)
        self._of_resource[product.resource] = tuple(
            self._shelves[key]
            for key in sorted(self._shelves)
            if self._shelves[key].product.resource == product.resource
        )
        return shelf


def _refusal(bucket: Bucket | None, resource: str, count: int) -> Refusal:
    return NO_SUCH_NPU if bucket is None else bucket.refusal(resource, count)


def _parted(
    names: Iterable[str], avoid: Container[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The names outside `avoid`, and those in it."""
    asked = tuple(names)
    shunned = [name for name in asked if name in avoid]
    if not shunned:
        return asked, ()
    return [name for name in asked if name not in avoid], shunned
