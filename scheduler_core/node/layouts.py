"""The ways in which the chips of one pod lie on a node.

A way is three functions: which chips to choose, which more for a pod that has some,
and whether a set of chips lies that way. The rows of the table name ways; `chips.py`
tries them in their order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from scheduler_core.node.chip_mask import ids_of, lowest
from scheduler_core.products.columns import Product, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way. Counts are legal ones, masks lie within the row's chips."""

    #: (row, free, count) -> mask, 0 for none: equal groups go to the lower one, and
    #: within a group the lowest ids go first
    choose: Callable[[Product, int, int], int]
    #: (row, free, taken, count in all) -> mask of those that are missing, 0 for none
    complete: Callable[[Product, int, int, int], int]
    #: (row, chips) -> whether they lie that way
    admits: Callable[[Product, int], bool]


def _choose_groups(product: Product, free: int, count: int) -> int:
    size, groups = product.group_size, product.groups
    whole, rest = divmod(count, size)
    left = [(free & group).bit_count() for group in groups]
    taken = 0
    for index, group in enumerate(groups):
        if not whole:
            break
        if left[index] == size:
            taken |= group
            left[index] = 0
            whole -= 1
    if whole or not rest:
        return 0 if whole else taken
    for preferred in product.group_preference[rest]:
        if preferred in left:
            return taken | lowest(free & groups[left.index(preferred)], rest)
    return 0


def _complete_groups(product: Product, free: int, taken: int, count: int) -> int:
    """The lowest ids of all that would be legal."""
    missing = count - taken.bit_count()
    found = (
        more
        for home, rest in _homes(product, count)
        if not taken & ~(home | rest)
        and (more := _within(free, taken, home, rest, missing))
    )
    return min(found, key=ids_of, default=0)


def _homes(product: Product, count: int) -> Iterator[tuple[int, int]]:
    """Whole groups, and the group where the rest may lie; 0 is no such group."""
    whole, rest = divmod(count, product.group_size)
    for some in combinations(product.groups, whole):
        home = sum(some)
        if not rest:
            yield home, 0
            continue
        for group in product.groups:
            if not group & home:
                yield home, group


def _within(free: int, taken: int, home: int, rest: int, missing: int) -> int:
    """All of `home`, and of `rest` what is still missing then; 0 when it cannot be."""
    needed = home & ~taken
    left = missing - needed.bit_count()
    if needed & ~free or left < 0:
        return 0
    more = lowest(free & rest, left)
    return needed | more if more.bit_count() == left else 0


def _admits_groups(product: Product, chips: int) -> bool:
    parts = [chips & group for group in product.groups]
    return sum(0 < part != group for part, group in _beside(parts, product)) <= 1


def _beside(parts: list[int], product: Product) -> Iterator[tuple[int, int]]:
    return zip(parts, product.groups, strict=True)


def _halves(product: Product, mask: int) -> tuple[int, int]:
    """The chips of the two groups, each as a mask of positions."""
    return mask & product.groups[0], mask >> product.group_size


def _choose_pairs(product: Product, free: int, count: int) -> int:
    left, right = _halves(product, free)
    half = lowest(left & right, count // 2)
    return half | half << product.group_size


def _complete_pairs(product: Product, free: int, taken: int, count: int) -> int:
    has_left, has_right = _halves(product, taken)
    left, right = _halves(product, free | taken)
    begun = has_left | has_right
    if begun & ~(left & right) or begun.bit_count() > count // 2:
        return 0
    half = begun | lowest(left & right & ~begun, count // 2 - begun.bit_count())
    chosen = half | half << product.group_size
    return chosen & ~taken if chosen.bit_count() == count else 0


def _admits_pairs(product: Product, chips: int) -> bool:
    left, right = _halves(product, chips)
    return left == right


def _choose_halves(product: Product, free: int, count: int) -> int:
    left, right = _halves(product, free)
    one, other = lowest(left, count // 2), lowest(right, count // 2)
    return one | other << product.group_size if one and other else 0


def _complete_halves(product: Product, free: int, taken: int, count: int) -> int:
    more = 0
    for group in product.groups:
        left = count // 2 - (taken & group).bit_count()
        here = lowest(free & group, left) if left > 0 else 0
        if here.bit_count() != left:
            return 0
        more |= here
    return more


def _admits_halves(product: Product, chips: int) -> bool:
    left, right = _halves(product, chips)
    return left.bit_count() == right.bit_count()


def _choose_lowest(_product: Product, free: int, count: int) -> int:
    return lowest(free, count)


def _choose_whole_first(product: Product, free: int, count: int) -> int:
    if free.bit_count() < count:
        return 0
    whole = [group for group in product.groups if free & group == group]
    taken = sum(whole[: count // product.group_size])
    missing = count - taken.bit_count()
    if not missing:
        return taken
    parts = [free & ~taken & group for group in product.groups]
    shares = _few_groups(
        tuple([part.bit_count() for part in parts]), missing, product.group_loss
    )
    some = zip(parts, shares, strict=True)
    return taken | sum([lowest(part, number) for part, number in some if number])


@cache
def _few_groups(
    free: tuple[int, ...], count: int, loss: tuple[int, ...]
) -> tuple[int, ...]:
    """How many chips each group gives: of few groups, then so that few fragments stay.

    Some groups give all that they have, and one what is missing then: if two gave a
    part of theirs, one of them might as well give all of it. Equal ways take more of
    the lower groups.

    Args:
        free: Free chips of each group.
        count: Chips wanted, no more than these.
        loss: `Product.group_loss`.
    """
    numbers = range(1, len(free) + 1)
    ways = next(ways for n in numbers if (ways := _ways_of_few(free, count, n)))

    def scatter(given: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        left = sum(loss[has - number] for has, number in zip(free, given, strict=True))
        return left, tuple([-number for number in given])

    return min(ways, key=scatter)


def _ways_of_few(
    free: tuple[int, ...], count: int, number: int
) -> list[tuple[int, ...]]:
    """How many chips each group gives, when so many groups give some."""
    some = [group for group, chips in enumerate(free) if chips]
    ways = []
    for last in some:
        others = [group for group in some if group != last]
        for emptied in combinations(others, number - 1):
            missing = count - sum(free[group] for group in emptied)
            if 0 < missing <= free[last]:
                given = [0] * len(free)
                for group in emptied:
                    given[group] = free[group]
                given[last] = missing
                ways.append(tuple(given))
    return ways


def _choose_emptiest_first(product: Product, free: int, count: int) -> int:
    if free.bit_count() < count:
        return 0
    #: by number of free chips: the chips of all groups that have so many
    having = [0] * (product.group_size + 1)
    for group in product.groups:
        part = free & group
        having[part.bit_count()] |= part
    taken = 0
    for chips in having:
        missing = count - taken.bit_count()
        if chips.bit_count() >= missing:
            return taken | lowest(chips, missing)  # equal groups by their ids
        taken |= chips
    return taken


def _complete_lowest(_product: Product, free: int, taken: int, count: int) -> int:
    return lowest(free, count - taken.bit_count())


def _admits_any(_product: Product, _chips: int) -> bool:
    return True


LAYOUTS = {
    Way.GROUPS: Layout(
        choose=_choose_groups, complete=_complete_groups, admits=_admits_groups
    ),
    Way.PAIRS: Layout(
        choose=_choose_pairs, complete=_complete_pairs, admits=_admits_pairs
    ),
    Way.HALVES: Layout(
        choose=_choose_halves, complete=_complete_halves, admits=_admits_halves
    ),
    Way.WHOLE_FIRST: Layout(
        choose=_choose_whole_first, complete=_complete_lowest, admits=_admits_any
    ),
    Way.EMPTIEST_FIRST: Layout(
        choose=_choose_emptiest_first, complete=_complete_lowest, admits=_admits_any
    ),
    Way.LOWEST: Layout(
        choose=_choose_lowest, complete=_complete_lowest, admits=_admits_any
    ),
}
