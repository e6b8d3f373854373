"""Search for the legal chips of a node that would become free at the lowest price.

Price 0 is a free chip; higher prices are chips that something must release or heal
first. Chips that cannot become free are left out. The search is exact.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from scheduler_core.node.chip_mask import ids_of, lowest
from scheduler_core.products.columns import Product, Way

#: [price] = mask of the chips with that price; the masks are disjoint
Tiers = tuple[int, ...]
#: (row, tiers, count) -> legal sets, the cheapest of this way among them
_Search = Callable[[Product, Tiers, int], Iterator[int]]

#: entries of the cache of `find_cheapest`
_REMEMBERED = 1 << 14


def price(tiers: Tiers, chosen: int) -> int:
    """Return the sum of the prices of the chosen chips."""
    return sum(cost * (chosen & tier).bit_count() for cost, tier in enumerate(tiers))


@lru_cache(maxsize=_REMEMBERED)
def find_cheapest(row: Product, tiers: Tiers, count: int) -> int:
    """Return the cheapest legal set of `count` chips; of equals the lowest ids.

    Returns:
        Mask of the chips; 0 when no legal set exists at any price.
    """
    masks = (
        mask
        for way in row.ways.get(count, ())
        for mask in _SEARCHES[way](row, tiers, count)
        if mask.bit_count() == count
    )
    return min(masks, key=lambda mask: (price(tiers, mask), ids_of(mask)), default=0)


def _cheapest(tiers: Tiers, within: int, count: int) -> int:
    """Return the `count` cheapest chips of `within`; all when it has fewer."""
    chosen = 0
    for tier in tiers:
        part = tier & within
        missing = count - chosen.bit_count()
        chosen |= part if part.bit_count() <= missing else lowest(part, missing)
    return chosen


def _search_groups(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    """Yield, for each group that could hold the rest, the cheapest whole groups too."""
    whole, rest = divmod(count, row.group_size)
    available = sum(tiers)
    full = [group for group in row.groups if available & group == group]
    full.sort(key=lambda group: (price(tiers, group), group))
    for last in row.groups if rest else (0,):
        whole_groups = [group for group in full if group != last][:whole]
        yield sum(whole_groups) | _cheapest(tiers, last, rest)


def _search_halves(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    left, right = row.groups
    half = count // 2
    yield _cheapest(tiers, left, half) | _cheapest(tiers, right, half)


def _search_pairs(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    available = sum(tiers)
    size = row.group_size
    pairs = [1 << position | 1 << position + size for position in range(size)]
    whole = [pair for pair in pairs if available & pair == pair]
    whole.sort(key=lambda pair: (price(tiers, pair), pair))
    yield sum(whole[: count // 2])


def _search_any(row: Product, tiers: Tiers, count: int) -> Iterator[int]:
    yield _cheapest(tiers, row.all_chips, count)


_SEARCHES: dict[Way, _Search] = {
    Way.GROUPS: _search_groups,
    Way.HALVES: _search_halves,
    Way.PAIRS: _search_pairs,
    Way.WHOLE_FIRST: _search_any,
    Way.EMPTIEST_FIRST: _search_any,
    Way.LOWEST: _search_any,
}
