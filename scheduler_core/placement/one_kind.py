"""The one kind of server that all pods of a job get, and the order of trying kinds.

A kind is the hardware of nodes, and the row by which these serve the job. A job goes
to the first kind on which it fits whole.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from scheduler_core.index.queries import sort_reasons
from scheduler_core.node.decision import Rejection
from scheduler_core.node.state import resource_of
from scheduler_core.products.columns import GroupKind, Product

T = TypeVar("T")


class Kind(NamedTuple):
    """Nodes with the same row, and the row by which they serve a job."""

    row: Product
    #: row of the nodes' hardware
    hardware: Product


def kinds_of(
    wanted: Product | str | None,
    present: Iterable[Product],
    running: Iterable[Product] = (),
) -> list[Kind]:
    """Return the kinds of server that a job may have, in the order of trying them.

    A job that names no row is served by each node's own row; these are tried by key.
    A job that names a row is tried on nodes of this row, then by key on others that
    may be such servers (`_may_be`). A job that runs keeps its kind.

    Args:
        wanted: Result of `lookup.resolve_job`.
        present: Rows of the nodes that the job may have.
        running: Rows of the nodes that pods of the job have.
    """
    if wanted is None:
        return []
    occupied = frozenset(running)
    resource = resource_of(wanted)
    known = {row for row in {*present, *occupied} if row.resource == resource}
    by_key = sorted(known, key=lambda row: row.key)
    if isinstance(wanted, str):
        kinds = [Kind(row, row) for row in by_key]
    else:
        kinds = [Kind(wanted, wanted)]
        kinds += [
            Kind(wanted, row)
            for row in by_key
            if row is not wanted
            and _may_be(row, wanted, is_unknown=wanted not in known)
        ]
    return [kind for kind in kinds if not occupied or kind.hardware in occupied]


def describe_other(needed: Product, offered: Iterable[Product]) -> str:
    """Return that a pod or job needs another kind of server than these, by keys."""
    keys = ", ".join(sorted({row.key for row in offered}))
    return f"it needs {needed.key}, and what is offered is {keys}"


def place_on_one(
    kinds: Sequence[Kind],
    offered: Collection[Product],
    place: Callable[[Kind], T | Rejection],
) -> T | Rejection:
    """Return the place of a job on the first kind on which it fits, or why on none.

    Args:
        kinds: Result of `kinds_of`.
        offered: Rows of the nodes that the job may have.
        place: Places the whole job on nodes of one kind.
    """
    if kinds and offered and not any(kind.hardware in offered for kind in kinds):
        return Rejection(job=describe_other(kinds[0].row, offered), reasons=())
    refused: dict[str, Rejection] = {}
    for kind in kinds:
        answer = place(kind)
        if not isinstance(answer, Rejection):
            return answer
        refused[kind.hardware.name] = answer
    if not refused:
        text = "no kind of server that is offered serves such a job"
        return Rejection(job=text, reasons=())
    if len(refused) == 1:
        return next(iter(refused.values()))
    counts: Counter[str] = Counter()
    for answer in refused.values():
        counts.update(dict(answer.reasons))
    texts = [f"{name}: {answer.job or answer.text}" for name, answer in refused.items()]
    return Rejection(
        job="; ".join(("a job gets servers of one kind", *texts)),
        reasons=sort_reasons(counts.items()),
    )


def _may_be(hardware: Product, row: Product, *, is_unknown: bool) -> bool:
    """Return whether nodes with this hardware may be the servers that a row means.

    They may if the row has no groups, or groups like theirs. They may also if nobody
    knows better than the job: no node has the row itself, and no label describes the
    nodes, or means the row.

    Args:
        is_unknown: Whether no node has the row itself.
    """
    has_groups = row.group_kind is GroupKind.NONE or (
        (row.group_kind, row.group_size) == (hardware.group_kind, hardware.group_size)
    )
    return has_groups or (
        is_unknown and any(_is_unlabelled(known_row) for known_row in (hardware, row))
    )


def _is_unlabelled(row: Product) -> bool:
    """Return whether nodes without `accelerator-type` may have a row."""
    return "" in ((*row.accelerator_types, *row.node_types) or ("",))
