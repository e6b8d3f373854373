"""Ranks that compare nodes for a count of chips: first by group, then within it.

A rank is a key; smaller is better. Whether a node can serve at all is decided by
`chips.find_reason`. Nodes with equal ranks are equally good; the name decides.
Each row of the table names its order. Ranks of different rows cannot be compared.
"""

from collections.abc import Callable
from typing import NamedTuple

from scheduler_core.node import chips
from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.products.columns import Order, Way
from scheduler_core.products.table import Product


class Rank(NamedTuple):
    """Rank of a node for a count; compares as a tuple, the smallest is the best."""

    #: number of absent or unhealthy chips: 8 healthy chips come before 7
    missing: int
    #: index of the chosen group's free count in the preference (0 is group A); rows
    #: with another order put their own number here
    group: int
    #: number of free chips outside the chosen group: nodes in use come first
    other: int


def rank(product: Product, healthy: int, free: int, count: int) -> Rank | None:
    """Return the rank of a node for `count` chips; None when it cannot serve.

    An unhealthy chip counts as used. Rows with `capacity_staged` put all nodes with
    more healthy chips first. An even number of remaining chips needs no part of the
    key: `group` and `other` determine it.

    Args:
        product: The row.
        healthy: Mask of the node's healthy chips.
        free: Mask of its free chips, all of them healthy.
        count: Chips of the pod.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Scenario Classification" and
        "Fault Considerations". That text puts the pair 3~3 for two chips in no group;
        it is the last of group C. Node Scoring, "Common Node Selection Principle".
    """
    chosen = chips.choose(product, free, count)
    if not chosen:
        return None
    missing = product.chip_count - healthy.bit_count()
    return _ORDERS[product.order](product, missing, free, chosen)


def encode_rank(product: Product, key: Rank) -> int:
    """Return the rank as one number of the same order; below 2^10 for 8 chips."""
    base = product.chip_count + 1
    return (key.missing * base + key.group) * base + key.other


def missing_chip_cost(product: Product) -> int:
    """Return the amount that each missing chip adds to `encode_rank` of a node.

    The amount does not depend on the free chips, so the index can add it afterwards.
    """
    base = product.chip_count + 1
    if product.order is Order.MISFIT:
        return base
    staged = product.order is Order.GROUP and product.capacity_staged
    return base * base if staged else 0


def _by_group(product: Product, missing: int, free: int, chosen: int) -> Rank:
    """Rank preferred groups first, then nodes with fewer other free chips.

    For a row with several ways, the way counts before the group. For ways that allow
    any chips, only the chosen chips count as the group.
    """
    count, size = chosen.bit_count(), product.group_size
    ways = product.ways[count]
    admits = (LAYOUTS[way].admits(product, chosen) for way in ways)
    index = tuple(admits).index(True)
    used = [group for group in product.groups if group & chosen]
    home = sum(used) if ways[index] is Way.GROUPS else chosen
    if preference := product.group_preference.get(count % size):
        index += min(preference.index((free & group).bit_count()) for group in used)
    return Rank(
        missing if product.capacity_staged else 0, index, (free & ~home).bit_count()
    )


def _by_misfit(product: Product, missing: int, free: int, chosen: int) -> Rank:
    """Rank by missing chips plus chips left over in the group that serves.

    A count larger than a group takes equal parts of both groups. Chips left over are
    then counted in such parts.
    """
    left, right = product.groups
    shift = product.group_size
    if chosen & left and chosen & right:
        halves = (free & left).bit_count(), (free & right).bit_count()
        free_parts = min(halves)
        if Way.PAIRS in product.ways[chosen.bit_count()]:
            free_parts = (free & left & free >> shift).bit_count()
        misfit = free_parts - chosen.bit_count() // 2
    else:
        home = left if chosen & left else right
        misfit = (free & home).bit_count() - chosen.bit_count()
    return Rank(0, missing + misfit, free.bit_count())


def _by_spare_groups(product: Product, _missing: int, free: int, chosen: int) -> Rank:
    """Rank by the number of spare groups that could serve too, then by spare chips."""
    count, size = chosen.bit_count(), product.group_size
    spare_chips = free.bit_count() - count
    if count > size and count % size:
        return Rank(0, 0, spare_chips)
    needed, part = (count // size, size) if count >= size else (1, count)
    able = sum((free & group).bit_count() >= part for group in product.groups)
    return Rank(0, able - needed, spare_chips)


_ORDERS: dict[Order, Callable[[Product, int, int, int], Rank]] = {
    Order.GROUP: _by_group,
    Order.MISFIT: _by_misfit,
    Order.SPARE_GROUPS: _by_spare_groups,
}
