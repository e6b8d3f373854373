"""Which chips of one node: the ways of the product's row, tried in their order.

For products of up to eight chips the answer for every mask and count is computed
once, so that a decision is one look-up; to search each time costs ten times as much.
For larger ones the table fills as it is asked.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

from scheduler_core.node.chip_mask import ids_of, kinds_of_groups, mask_of
from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import Product

__all__ = [
    "able",
    "choose",
    "complete",
    "ids_of",
    "is_legal",
    "mask_of",
    "shape",
    "table",
    "why_not",
]

#: chips of a server up to which all answers are computed at once: 2,304 entries
SMALL = 8
#: answers that are remembered of larger servers, all products together
_REMEMBERED = 1 << 17


def choose(product: Product, free: int, count: int) -> int:
    """Choose which chips of one node a pod gets.

    The first way of the row that can be had decides (`layouts.py`): for most, the
    group whose number of free chips comes first in the preference for `count`, so
    that whole groups stay whole for those who need them. Equal groups go to the
    lower one, and within a group the lowest ids go first.

    Args:
        product: The row.
        free: Mask of the chips that may be given; any subset of the product's.
        count: Chips wanted by the whole pod.

    Returns:
        A mask of `count` chips, all in `free`; 0 when the node cannot serve.

    Cost:
        One look-up; for more than eight chips a search on the first time.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Affinity Policy Description",
        priority 1; Affinity Scheduling Description, table 1.
    """
    if product.chip_count > SMALL:
        return _remembered(product, free, count)
    by_count = table(product)
    return by_count[count][free] if 0 < count < len(by_count) else 0


def complete(product: Product, free: int, taken: int, count: int) -> int:
    """Choose `count` more chips for a pod that has some already.

    Args:
        product: The row.
        free: Mask of the chips that may be given.
        taken: Mask of the chips that containers of the same pod have; 0 is none.
        count: How many more are wanted: all that the pod still needs, because
            `taken` and the answer together must be legal.

    Returns:
        A mask of `count` chips of `free` without `taken`, the lowest ids first; 0
        when nothing legal can come of it.
    """
    free &= ~taken
    if not taken:
        return choose(product, free, count)
    if count < 1 or taken & ~product.all_chips:
        return 0
    wanted = count + taken.bit_count()
    for way in product.ways.get(wanted, ()):
        if more := LAYOUTS[way].complete(product, free, taken, wanted):
            return more
    return 0


def is_legal(product: Product, chips: int) -> bool:
    """Whether a pod may have exactly these chips: a legal count, laid out in a way."""
    if chips & ~product.all_chips:
        return False
    ways = product.ways.get(chips.bit_count(), ())
    return any(LAYOUTS[way].admits(product, chips) for way in ways)


def shape(product: Product, mask: int) -> tuple[int, ...] | int:
    """What of a set of chips can matter to any answer about it; sets may share it.

    How many groups have how many of its chips, whichever group it is; and how many
    pairs of matching positions there are, where the row gives out such pairs.

    Cost:
        A look-up for each eight chips.
    """
    if not product.group_preference:
        return mask.bit_count()
    kinds = kinds_of_groups(mask, product.group_size, product.chip_count)
    if not product.in_pairs:
        return kinds
    pairs = mask & mask >> product.group_size & product.groups[0]
    return kinds, pairs.bit_count()


def able(product: Product, mask: int) -> int:
    """Which counts these chips can serve: bit n says whether n chips."""
    return sum(1 << count for count in product.counts if choose(product, mask, count))


def why_not(
    product: Product, free: int, healthy: int, count: int, *, usable: int | None = None
) -> Reason | None:
    """Why a node cannot serve `count` chips: the first reason that is true.

    In this order: no pod of this product may have so many; even with nothing on the
    node its healthy chips would not do; those whose network is healthy would not;
    too few chips are free; they are not together.

    Args:
        product: The row.
        free: Mask of the chips that may be given, all of them healthy and usable.
        healthy: Mask of the node's healthy chips.
        count: Chips wanted.
        usable: Mask of the healthy chips that pods of this row may have; None is all.

    Returns:
        The reason, or None when the node can serve.
    """
    if count not in product.ways:
        return Reason.ILLEGAL_COUNT
    if choose(product, free, count):
        return None

    def could(mask: int) -> int:
        return (choose(product, mask, count) != 0) << count

    return why(
        product,
        count,
        free=free.bit_count(),
        healthy=could(healthy),
        usable=could(healthy if usable is None else usable),
    )


def why(
    product: Product, count: int, *, free: int, healthy: int, usable: int
) -> Reason:
    """Why a node cannot serve `count` chips, by what it could serve otherwise.

    Args:
        product: The row.
        count: Chips wanted; not a count that the node can serve.
        free: How many chips may be given.
        healthy: What the node could serve (`able`) if all healthy chips were free.
        usable: The same of the healthy chips that pods of this row may have.
    """
    if count not in product.ways:
        return Reason.ILLEGAL_COUNT
    if not healthy >> count & 1:
        return Reason.CHIP_UNHEALTHY
    if not usable >> count & 1:
        return Reason.NETWORK_UNHEALTHY
    return Reason.TOO_FEW_FREE if free < count else Reason.GROUP_TOO_SMALL


@cache
def table(product: Product) -> Sequence[Sequence[int]]:
    """All answers of `choose`.

    Shape:
        `table[count][free]`, counts from 0 to the product's chips.

    Cost:
        Once per product: masks times counts; 8 chips, 2,304 entries.
    """
    masks = range(product.all_chips + 1)
    return tuple(
        tuple(_search(product, free, count) for free in masks)
        for count in range(product.chip_count + 1)
    )


def _search(product: Product, free: int, count: int) -> int:
    for way in product.ways.get(count, ()):
        if chosen := LAYOUTS[way].choose(product, free, count):
            return chosen
    return 0


_remembered = lru_cache(maxsize=_REMEMBERED)(_search)
