"""Answers of the index to queries: the best node, or a verdict for each of a list."""

from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_core.index.buckets import NEVER, NO_SUCH_NPU, Bucket
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


def refusal_of_bucket(bucket: Bucket | None, count: int) -> Refusal:
    """Return the refusal of the nodes of a bucket; None stands for unknown nodes."""
    return NO_SUCH_NPU if bucket is None else bucket.refusal(count)


def grade_buckets(
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


def split_avoided(
    names: Iterable[str], avoid: Container[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names outside `avoid`, and the names in it."""
    all_names = tuple(names)
    avoided = [name for name in all_names if name in avoid]
    if not avoided:
        return all_names, ()
    return [name for name in all_names if name not in avoid], avoided
