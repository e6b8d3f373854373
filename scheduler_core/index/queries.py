"""Queries over nodes, which the index and an overlay on it answer, and the answers."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress
from operator import itemgetter
from typing import NamedTuple

from scheduler_core.index.buckets import NEVER, NO_SUCH_NPU, Bucket
from scheduler_core.index.counts import Census, Groups
from scheduler_core.node.reasons import Refusal
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product


class BestNode(NamedTuple):
    """The best node for a count of chips."""

    node: NodeState
    #: row by which the node serves
    row: Product
    #: rank of the node (`order.encode_rank`)
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Verdicts on a list of nodes for a count; every node is in exactly one part."""

    #: nodes with the best rank, in the order of the query
    best: tuple[str, ...]
    #: nodes that can serve with another rank, in the order of the query
    worse: tuple[str, ...]
    #: {name of a node that cannot serve: its refusal}
    refused: Mapping[str, Refusal]


class NodeIndex(ABC):
    """Queries over all nodes with NPUs: those of an index, or of an overlay on one.

    `wanted` is a resource (each node serves by its own row) or a row (each node that
    can serve by this row does). `in_network` says that the pod's job has several
    pods, which use the network between nodes (`columns.distributed`).

    Cost:
        Any query with `names`: a look-up for each name. The first query for a row
        looks at all nodes once.
    """

    __slots__ = ()

    @abstractmethod
    def nodes(self, wanted: Product | str) -> Mapping[str, NodeState]:
        """Return {name: node} of the nodes with chips of a resource, as a live view.

        Args:
            wanted: The Kubernetes resource, or a row of it.
        """

    @abstractmethod
    def has_node(self, name: str) -> bool:
        """Return whether a node with this name has chips of any resource."""

    def best(
        self,
        wanted: Product | str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        avoid: Container[str] = (),
        in_network: bool = False,
    ) -> BestNode | None:
        """Return the best node for `count` chips; of equals the first by name.

        Rows of one resource are tried in the order of their keys.

        Args:
            wanted: The Kubernetes resource, or a row.
            count: Chips of the whole pod.
            names: Nodes to consider, in any order; None is all.
            avoid: Nodes to leave out.
            in_network: Whether the pod's job has several pods.
        """
        if names is not None:
            candidates = [name for name in names if name not in avoid]
            buckets = self.buckets(wanted, candidates, in_network=in_network)
            least, best, _ = _grade_buckets(set(buckets), count)
            if least is None:
                return None
            name = min(compress(candidates, map(best.__contains__, buckets)))
            row = next(iter(best)).product
            return BestNode(node=self.nodes(row)[name], row=row, rank=least)
        return self._best_of_all(wanted, count, avoid, in_network=in_network)

    def ranked(
        self,
        wanted: Product | str,
        count: int,
        *,
        names: Iterable[str] | None = None,
        in_network: bool = False,
    ) -> Iterator[tuple[Product, int, str]]:
        """Yield (row, rank, name) of every node that can serve, the best first.

        The index must not change before the iteration ends. Arguments are as for
        `best`.

        Cost:
            A step for each node that is read; with `names`, a sort of them first.
        """
        if names is None:
            return self._ranked_of_all(wanted, count, in_network=in_network)
        candidates = tuple(names)
        buckets = self.buckets(wanted, candidates, in_network=in_network)
        return iter(rank_names(candidates, buckets, count))

    def survey(
        self,
        wanted: Product | str,
        count: int,
        names: Iterable[str],
        *,
        avoid: Container[str] = (),
        in_network: bool = False,
    ) -> Survey:
        """Return a verdict on each of these nodes for `count` chips.

        Args:
            wanted: The Kubernetes resource, or a row.
            count: Chips of the whole pod.
            names: Nodes to look at, each once; unknown ones are refused.
            avoid: Nodes of `names` to refuse although they could serve.
            in_network: Whether the pod's job has several pods.

        Cost:
            A look-up for each name, a few steps for each of their buckets.
        """
        candidates, avoided = _split_avoided(names, avoid)
        buckets = self.buckets(wanted, candidates, in_network=in_network)
        distinct = set(buckets)
        _, best, worse = _grade_buckets(distinct, count)
        refusals = {
            bucket: _refusal_of_bucket(bucket, count)
            for bucket in distinct - best - worse
        }
        refused = {
            name: refusals[bucket]
            for name, bucket in zip(candidates, buckets, strict=True)
            if bucket in refusals
        }
        avoided_buckets = self.buckets(wanted, avoided, in_network=in_network)
        for name, bucket in zip(avoided, avoided_buckets, strict=True):
            if bucket not in refusals:  # one that can serve: its nodes share one text
                refusals[bucket] = _refusal_of_bucket(bucket, count)
            refused[name] = refusals[bucket]
        return Survey(
            best=tuple(compress(candidates, map(best.__contains__, buckets))),
            worse=tuple(compress(candidates, map(worse.__contains__, buckets))),
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
        """Return why none of these nodes serves: texts with counts of nodes.

        Call it after `best` returned None for the same arguments. A node that could
        serve was avoided then.

        Returns:
            The most frequent first, then by text; the counts add up to the nodes.
        """
        if names is None:
            tally = self._refusals_of_all(wanted, count, in_network=in_network)
        else:
            tally = Counter()
            buckets = self.buckets(wanted, tuple(names), in_network=in_network)
            for bucket, nodes in Counter(buckets).items():
                tally[_refusal_of_bucket(bucket, count).text] += nodes
        return sort_reasons(tally.items())

    @abstractmethod
    def rank(
        self, wanted: Product | str, count: int, name: str, *, in_network: bool = False
    ) -> tuple[str, int]:
        """Return the key of the row by which a node serves, and its rank.

        Raises:
            KeyError: The node cannot serve.
        """

    @abstractmethod
    def census(
        self,
        groups: Groups,
        wanted: Product | str,
        count: int,
        *,
        in_network: bool = False,
    ) -> Census:
        """Return the census of the nodes of each leaf or SuperPoD that can take a pod.

        Args:
            groups: Nodes of each site, by position.
            wanted: The Kubernetes resource, or a row.
            count: Chips of the whole pod.
            in_network: Whether the pod's job has several pods.

        Returns:
            A census to read before the index changes again, and not to be changed.
        """

    @abstractmethod
    def bucket(self, state: NodeState, row: Product) -> Bucket:
        """Return the answers of a node in this state by a row that it can serve by.

        The node need not be in the index.
        """

    @abstractmethod
    def buckets(
        self, wanted: Product | str, names: Sequence[str], *, in_network: bool
    ) -> Sequence[Bucket | None]:
        """Return the bucket of each node; None for nodes that do not serve `wanted`."""

    def _best_of_all(
        self,
        wanted: Product | str,
        count: int,
        avoid: Container[str],
        *,
        in_network: bool,
    ) -> BestNode | None:
        """Return `best` over all nodes; an index may know a faster way."""
        ranked = self._ranked_of_all(wanted, count, in_network=in_network)
        for row, rank, name in ranked:
            if name not in avoid:
                return BestNode(node=self.nodes(row)[name], row=row, rank=rank)
        return None

    @abstractmethod
    def _ranked_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Iterator[tuple[Product, int, str]]:
        """Yield `ranked` over all nodes."""

    @abstractmethod
    def _refusals_of_all(
        self, wanted: Product | str, count: int, *, in_network: bool
    ) -> Counter[str]:
        """Return {text of a refusal: number of nodes, or 0} over all nodes."""


def rank_names(
    names: Iterable[str], buckets: Iterable[Bucket | None], count: int
) -> list[tuple[Product, int, str]]:
    """Return (row, rank, name) of the nodes that can serve, the best first.

    Args:
        names: Names of nodes, each once.
        buckets: Bucket of each; None for a node that does not serve.
        count: Chips of the whole pod.
    """
    keyed = [
        (bucket.product.key, rank, name, bucket.product)
        for name, bucket in zip(names, buckets, strict=True)
        if bucket is not None and (rank := bucket.rank(count)) != NEVER
    ]
    keyed.sort(key=itemgetter(0, 1, 2))
    return [(row, rank, name) for _, rank, name, row in keyed]


def sort_reasons(counts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return (text, number of nodes), most nodes first; texts without nodes go."""
    present = [(text, nodes) for text, nodes in counts if nodes]
    return tuple(sorted(present, key=lambda item: (-item[1], item[0])))


def _refusal_of_bucket(bucket: Bucket | None, count: int) -> Refusal:
    """Return the refusal of the nodes of a bucket; None stands for unknown nodes."""
    return NO_SUCH_NPU if bucket is None else bucket.refusal(count)


def _grade_buckets(
    buckets: Iterable[Bucket | None], count: int
) -> tuple[int | None, AbstractSet[Bucket], AbstractSet[Bucket]]:
    """Return the best rank, the buckets with it, and the other buckets that serve.

    Rows compare by their keys before ranks do.
    """
    ranks = {
        bucket: (bucket.product.key, rank)
        for bucket in buckets
        if bucket is not None and (rank := bucket.rank(count)) != NEVER
    }
    if not ranks:
        return None, set(), set()
    least = min(ranks.values())
    best = {bucket for bucket, rank in ranks.items() if rank == least}
    return least[1], best, ranks.keys() - best


def _split_avoided(
    names: Iterable[str], avoid: Container[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names outside `avoid`, and the names in it."""
    all_names = tuple(names)
    avoided = [name for name in all_names if name in avoid]
    if not avoided:
        return all_names, ()
    return [name for name in all_names if name not in avoid], avoided
