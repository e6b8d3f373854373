"""Choice of chips on one node: the layouts of the product's row, in their order.

For products of up to 8 chips the answers for all masks and counts are computed once.
A decision is then one look-up; a search costs ten times as much. For larger products
each answer is computed at the first request and cached.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

from scheduler_core.node.chip_mask import (
    count_groups_by_fill,
    ids_of,
    mask_of,
    union,
)
from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import Product

__all__ = [
    "choose",
    "complete",
    "find_reason",
    "ids_of",
    "is_legal",
    "mask_of",
    "servable_counts",
    "shape",
    "table",
    "union",
]

#: largest number of chips for which all answers are computed at once: 2,304 entries
SMALL = 8
#: entries of the cache for larger servers, all products together
_REMEMBERED = 1 << 17


def choose(product: Product, free: int, count: int) -> int:
    """Choose the chips of one node for a pod and return their mask.

    The first way of the row with a result decides (`layouts.py`). Most rows prefer
    groups by their number of free chips, so that whole groups stay whole for larger
    pods. Of equal groups the lower one serves, and within a group the lowest ids.

    Args:
        product: The row.
        free: Mask of the chips that may be given; any subset of the product's.
        count: Chips of the whole pod.

    Returns:
        A mask of `count` chips, all in `free`; 0 when the node cannot serve.

    Cost:
        One look-up; for more than eight chips a search at the first request.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Affinity Policy Description",
        priority 1; Affinity Scheduling Description, table 1.
    """
    if product.chip_count > SMALL:
        return _remembered(product, free, count)
    by_count = table(product)
    return by_count[count][free] if 0 < count < len(by_count) else 0


def complete(product: Product, free: int, taken: int, count: int) -> int:
    """Choose `count` more chips for a pod with some chips and return their mask.

    Args:
        product: The row.
        free: Mask of the chips that may be given.
        taken: Mask of the chips that containers of the same pod have; may be 0.
        count: All chips that the pod still needs, because `taken` and the answer
            together must be legal.

    Returns:
        A mask of `count` chips of `free` without `taken`, the lowest ids first; 0
        when no legal set contains `taken`.
    """
    free &= ~taken
    if not taken:
        return choose(product, free, count)
    if count < 1 or taken & ~product.all_chips:
        return 0
    total = count + taken.bit_count()
    for way in product.ways.get(total, ()):
        if added := LAYOUTS[way].complete(product, free, taken, total):
            return added
    return 0


def is_legal(product: Product, chips: int) -> bool:
    """Return whether a pod may have exactly these chips: legal count, legal layout."""
    if chips & ~product.all_chips:
        return False
    ways = product.ways.get(chips.bit_count(), ())
    return any(LAYOUTS[way].admits(product, chips) for way in ways)


def shape(product: Product, mask: int) -> tuple[int, ...] | int:
    """Return a key of a set of chips; sets with equal keys get equal answers.

    The key counts groups by their number of chips, without saying which groups. For
    rows that give out pairs it also counts pairs at matching positions.

    Cost:
        A look-up for each eight chips.
    """
    if not product.group_preference:
        return mask.bit_count()
    fills = count_groups_by_fill(mask, product.group_size, product.chip_count)
    if not product.in_pairs:
        return fills
    pairs = mask & mask >> product.group_size & product.groups[0]
    return fills, pairs.bit_count()


def servable_counts(product: Product, mask: int) -> int:
    """Return the counts that these chips can serve, as a mask: bit n is n chips."""
    return sum(1 << count for count in product.counts if choose(product, mask, count))


def find_reason(
    product: Product, free: int, healthy: int, count: int, *, usable: int | None = None
) -> Reason | None:
    """Return the first reason why a node cannot serve `count` chips.

    Order: the count is illegal for the product; all healthy chips together could not
    serve; those with a healthy network could not; too few chips are free; the free
    chips do not lie in one layout.

    Args:
        product: The row.
        free: Mask of the chips that may be given, all of them healthy and usable.
        healthy: Mask of the node's healthy chips.
        count: Chips of the pod.
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

    return derive_reason(
        product,
        count,
        free=free.bit_count(),
        healthy=could(healthy),
        usable=could(healthy if usable is None else usable),
    )


def derive_reason(
    product: Product, count: int, *, free: int, healthy: int, usable: int
) -> Reason:
    """Return why a node cannot serve `count` chips, from the counts it could serve.

    Args:
        product: The row.
        count: Chips of the pod; not a count that the node can serve.
        free: Number of chips that may be given.
        healthy: `servable_counts` of all healthy chips.
        usable: `servable_counts` of the healthy chips that pods of this row may have.
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
    """Return all answers of `choose` for a product.

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
