"""What the index says of nodes: the best of all, or each of some."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_core.buckets import NO_SUCH_NPU, Bucket
from scheduler_core.nodes import NodeState
from scheduler_core.products import Product
from scheduler_core.reasons import Refusal


class Found(NamedTuple):
    """The best node for a count."""

    node: NodeState
    #: the row by whose rule it serves
    row: Product
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


def refused_by(bucket: Bucket | None, count: int) -> Refusal:
    """Why the nodes of a bucket cannot serve; None is the nodes that are not known."""
    return NO_SUCH_NPU if bucket is None else bucket.refusal(count)


def parted(
    names: Iterable[str], avoid: Container[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The names outside `avoid`, and those in it."""
    asked = tuple(names)
    shunned = [name for name in asked if name in avoid]
    if not shunned:
        return asked, ()
    return [name for name in asked if name not in avoid], shunned
