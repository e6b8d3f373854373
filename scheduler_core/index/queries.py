"""What the index says of nodes: the best of all, or each of some."""

from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_core.index.buckets import NEVER, NO_SUCH_NPU, Bucket
from scheduler_core.node.reasons import Refusal
from scheduler_core.node.state import NodeState
from scheduler_core.products.table import Product


class Found(NamedTuple):
    """The best node for a count."""

    node: NodeState
    #: the row by whose rule it serves
    row: Product
    #: how good it is (`order.number`)
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


def refused_by(bucket: Bucket | None, count: int) -> Refusal:
    """Why the nodes of a bucket cannot serve; None is the nodes that are not known."""
    return NO_SUCH_NPU if bucket is None else bucket.refusal(count)


def graded(
    buckets: Iterable[Bucket | None], count: int
) -> tuple[int | None, AbstractSet[Bucket], AbstractSet[Bucket]]:
    """The rank of the best of these buckets, those that have it, others that serve.

    Rows are tried in the order of their keys.
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


def parted(
    names: Iterable[str], avoid: Container[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The names outside `avoid`, and those in it."""
    asked = tuple(names)
    shunned = [name for name in asked if name in avoid]
    if not shunned:
        return asked, ()
    return [name for name in asked if name not in avoid], shunned
