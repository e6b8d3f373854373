"""Which chips of a node a pod could have the soonest, of those that are not free too.

Each chip has a price, from 0 for one that may be given at once; chips that no price can
buy are not there. Found is the cheapest set that is legal, exactly.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from scheduler_core.node.chip_mask import ids_of, lowest
from scheduler_core.products.columns import Product, Way

#: chips by their price, one mask for each, from 0; no chip in two
Tiers = tuple[int, ...]
#: (row, chips by price, count) -> legal sets, among them the cheapest of this way
_Search = Callable[[Product, Tiers, int], Iterator[int]]

#: answers that are remembered
_REMEMBERED = 1 << 14


def price(tiers: Tiers, chosen: int) -> int:
    """What all of these chips cost together."""
    return sum(each * (chosen & tier).bit_count() for each, tier in enumerate(tiers))


@lru_cache(maxsize=_REMEMBERED)
def nearest(row: Product, tiers: Tiers, count: int) -> int:
    """The cheapest legal set of `count` chips, of equals that of the lowest ids.

    Returns:
        Its mask; 0 when there is none at any price.
    """
    sets = (
        some
        for way in row.ways.get(count, ())
        for some in _SEARCHES[way](row, tiers, count)
        if some.bit_count() == count
    )
    return min(sets, key=lambda some: (price(tiers, some), ids_of(some)), default=0)


def _cheapest(tiers: Tiers, within: int, count: int) -> int:
    """The cheapest chips of `within`; fewer when it has not so many."""
    taken = 0
    for tier in tiers:
        part = tier & within
        missing = count - taken.bit_count()
        taken |= part if part.bit_count() <= missing else lowest(part, missing)
    return taken


def _of_groups(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    """For each group that could have the rest, the cheapest whole ones beside it."""
    whole, rest = divmod(count, row.group_size)
    there = sum(tiers)
    full = [group for group in row.groups if there & group == group]
    full.sort(key=lambda group: (price(tiers, group), group))
    for last in row.groups if rest else (0,):
        homes = [group for group in full if group != last][:whole]
        yield sum(homes) | _cheapest(tiers, last, rest)


def _of_halves(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    left, right = row.groups
    half = count // 2
    yield _cheapest(tiers, left, half) | _cheapest(tiers, right, half)


def _of_pairs(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    there = sum(tiers)
    pairs = [1 << at | 1 << at + row.group_size for at in range(row.group_size)]
    whole = [pair for pair in pairs if there & pair == pair]
    whole.sort(key=lambda pair: (price(tiers, pair), pair))
    yield sum(whole[: count // 2])


def _of_any(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    yield _cheapest(tiers, row.all_chips, count)


_SEARCHES: dict[Way, _Search] = {
    Way.GROUPS: _of_groups,
    Way.HALVES: _of_halves,
    Way.PAIRS: _of_pairs,
    Way.WHOLE_FIRST: _of_any,
    Way.EMPTIEST_FIRST: _of_any,
    Way.LOWEST: _of_any,
}
