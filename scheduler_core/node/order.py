"""In which order nodes are preferred: first the group, then the node in the group.

The order is a key, smaller is better, and never says whether a node can serve at all
(`chips.why_not` does). Nodes with equal keys are equally good; the name decides. Each
row of the table names its order; the keys of different rows cannot be compared.
"""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_core.node import chips
from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.products.columns import Order, Way
from scheduler_core.products.table import Product


class Rank(NamedTuple):
    """How good a node is for a count; compares as a tuple, the best is the smallest."""

    #: chips that the node lacks or that are not healthy: 8 healthy come before 7
    missing: int
    #: place of the chosen group's free count in the preference: 0 is group A; for
    #: rows of another order, what they count instead
    group: int
    #: free chips outside the chosen group: nodes already in use come first
    other: int


def rank(product: Product, healthy: int, free: int, count: int) -> Rank | None:
    """How good a node is for `count` chips.

    A chip that is not healthy counts as used, and where the row says so all nodes
    with more healthy chips come before those with fewer. That an even number of
    chips left is preferred needs no part of its own: group and other chips fix it.

    Args:
        product: The row.
        healthy: Mask of the node's healthy chips.
        free: Mask of its free chips, all of them healthy.
        count: Chips wanted.

    Returns:
        The key, or None when the node cannot serve.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification" and
        "Fault Considerations". The pair 3~3 for two chips stands in no group there;
        it is the last of group C. Node Scoring, "Common Node Selection Principle".
    """
    chosen = chips.choose(product, free, count)
    if not chosen:
        return None
    missing = product.chip_count - healthy.bit_count()
    return _ORDERS[product.order](product, missing, free, chosen)


def number(product: Product, key: Rank) -> int:
    """The key as one number of the same order, for an index; below 2^10 for 8 chips."""
    base = product.chip_count + 1
    return (key.missing * base + key.group) * base + key.other


def of_a_missing_chip(product: Product) -> int:
    """What each chip that is missing adds to a node's number, whatever it has free."""
    base = product.chip_count + 1
    if product.order is Order.MISFIT:
        return base
    staged = product.order is Order.GROUP and product.capacity_staged
    return base * base if staged else 0


def _by_group(product: Product, missing: int, free: int, chosen: int) -> Rank:
    """Preferred groups first; then the node that is fullest besides.

    Of a row with several ways, the way counts before the group. Where chips may lie
    anywhere, no group is set apart for them.
    """
    count, size = chosen.bit_count(), product.group_size
    ways = product.ways[count]
    admits = (LAYOUTS[way].admits(product, chosen) for way in ways)
    place = tuple(admits).index(True)
    used = [group for group in product.groups if group & chosen]
    home = sum(used) if ways[place] is Way.GROUPS else chosen
    if preference := product.group_preference.get(count % size):
        place += min(preference.index((free & group).bit_count()) for group in used)
    return Rank(
        missing if product.capacity_staged else 0, place, (free & ~home).bit_count()
    )


def _by_misfit(product: Product, missing: int, free: int, chosen: int) -> Rank:
    """A missing chip weighs as much as one left over where the pod goes.

    More than a group takes equal parts of both, and what is left over is counted in
    such parts.
    """
    left, right = product.groups
    shift = product.group_size
    if chosen & left and chosen & right:
        part = (free & left).bit_count(), (free & right).bit_count()
        each = min(part)
        if Way.PAIRS in product.ways[chosen.bit_count()]:
            each = (free & left & free >> shift).bit_count()
        misfit = each - chosen.bit_count() // 2
    else:
        home = left if chosen & left else right
        misfit = (free & home).bit_count() - chosen.bit_count()
    return Rank(0, missing + misfit, free.bit_count())


def _by_spare_groups(product: Product, _missing: int, free: int, chosen: int) -> Rank:
    """Where fewer groups are left that could serve as well, then fewer chips."""
    count, size = chosen.bit_count(), product.group_size
    left = free.bit_count() - count
    if count > size and count % size:
        return Rank(0, 0, left)
    needed, each = (count // size, size) if count >= size else (1, count)
    able = sum((free & group).bit_count() >= each for group in product.groups)
    return Rank(0, able - needed, left)


_ORDERS: dict[Order, Callable[[Product, int, int, int], Rank]] = {
    Order.GROUP: _by_group,
    Order.MISFIT: _by_misfit,
    Order.SPARE_GROUPS: _by_spare_groups,
}
