"""Functions behind each `Way`, a layout of the chips of one pod on a node.

Each way has three functions: choose chips, complete a pod with some chips, and check
a set of chips. Rows of the table name ways; `chips.py` tries them in their order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from scheduler_core.node.chip_mask import ids_of, lowest
from scheduler_core.products.columns import Product, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Functions of one way; counts must be legal, masks within the row's chips."""

    #: (row, free, count) -> mask of `count` chips, 0 for none. Of equal groups the
    #: lower one serves, and within a group the lowest ids.
    choose: Callable[[Product, int, int], int]
    #: (row, free, taken, total count) -> mask of the missing chips, 0 for none
    complete: Callable[[Product, int, int, int], int]
    #: (row, chips) -> whether the chips are laid out in this way
    admits: Callable[[Product, int], bool]


def _choose_groups(product: Product, free: int, count: int) -> int:
    size, groups = product.group_size, product.groups
    whole, rest = divmod(count, size)
    fills = [(free & group).bit_count() for group in groups]
    chosen = 0
    for index, group in enumerate(groups):
        if not whole:
            break
        if fills[index] == size:
            chosen |= group
            fills[index] = 0
            whole -= 1
    if whole or not rest:
        return 0 if whole else chosen
    for fill in product.group_preference[rest]:
        if fill in fills:
            return chosen | lowest(free & groups[fills.index(fill)], rest)
    return 0


def _complete_groups(product: Product, free: int, taken: int, count: int) -> int:
    """Return the legal completion with the lowest ids; 0 when there is none."""
    missing = count - taken.bit_count()
    completions = (
        added
        for whole_groups, rest_group in _group_splits(product, count)
        if not taken & ~(whole_groups | rest_group)
        and (added := _fill_groups(free, taken, whole_groups, rest_group, missing))
    )
    return min(completions, key=ids_of, default=0)


def _group_splits(product: Product, count: int) -> Iterator[tuple[int, int]]:
    """Yield (mask of whole groups, mask of the group for the rest) for a count.

    The second mask is 0 when whole groups make up the count.
    """
    whole, rest = divmod(count, product.group_size)
    for groups in combinations(product.groups, whole):
        whole_groups = sum(groups)
        if not rest:
            yield whole_groups, 0
            continue
        for group in product.groups:
            if not group & whole_groups:
                yield whole_groups, group


def _fill_groups(
    free: int, taken: int, whole_groups: int, rest_group: int, missing: int
) -> int:
    """Return all of `whole_groups` plus the missing chips of `rest_group`, or 0."""
    needed = whole_groups & ~taken
    rest = missing - needed.bit_count()
    if needed & ~free or rest < 0:
        return 0
    added = lowest(free & rest_group, rest)
    return needed | added if added.bit_count() == rest else 0


def _admits_groups(product: Product, chips: int) -> bool:
    parts = [chips & group for group in product.groups]
    return sum(0 < part != group for part, group in _pair_parts(parts, product)) <= 1


def _pair_parts(parts: list[int], product: Product) -> Iterator[tuple[int, int]]:
    return zip(parts, product.groups, strict=True)


def _split_halves(product: Product, mask: int) -> tuple[int, int]:
    """Return the chips of the two groups, each as a mask of positions."""
    return mask & product.groups[0], mask >> product.group_size


def _choose_pairs(product: Product, free: int, count: int) -> int:
    left, right = _split_halves(product, free)
    half = lowest(left & right, count // 2)
    return half | half << product.group_size


def _complete_pairs(product: Product, free: int, taken: int, count: int) -> int:
    taken_left, taken_right = _split_halves(product, taken)
    left, right = _split_halves(product, free | taken)
    positions = taken_left | taken_right
    if positions & ~(left & right) or positions.bit_count() > count // 2:
        return 0
    missing = count // 2 - positions.bit_count()
    half = positions | lowest(left & right & ~positions, missing)
    chosen = half | half << product.group_size
    return chosen & ~taken if chosen.bit_count() == count else 0


def _admits_pairs(product: Product, chips: int) -> bool:
    left, right = _split_halves(product, chips)
    return left == right


def _choose_halves(product: Product, free: int, count: int) -> int:
    left, right = _split_halves(product, free)
    left_half, right_half = lowest(left, count // 2), lowest(right, count // 2)
    if not left_half or not right_half:
        return 0
    return left_half | right_half << product.group_size


def _complete_halves(product: Product, free: int, taken: int, count: int) -> int:
    added = 0
    for group in product.groups:
        missing = count // 2 - (taken & group).bit_count()
        part = lowest(free & group, missing) if missing > 0 else 0
        if part.bit_count() != missing:
            return 0
        added |= part
    return added


def _admits_halves(product: Product, chips: int) -> bool:
    left, right = _split_halves(product, chips)
    return left.bit_count() == right.bit_count()


def _choose_lowest(_product: Product, free: int, count: int) -> int:
    return lowest(free, count)


def _choose_whole_first(product: Product, free: int, count: int) -> int:
    if free.bit_count() < count:
        return 0
    whole = [group for group in product.groups if free & group == group]
    chosen = sum(whole[: count // product.group_size])
    missing = count - chosen.bit_count()
    if not missing:
        return chosen
    parts = [free & ~chosen & group for group in product.groups]
    shares = _few_groups(
        tuple([part.bit_count() for part in parts]), missing, product.group_loss
    )
    part_shares = zip(parts, shares, strict=True)
    return chosen | sum([lowest(part, share) for part, share in part_shares if share])


@cache
def _few_groups(
    free: tuple[int, ...], count: int, loss: tuple[int, ...]
) -> tuple[int, ...]:
    """Return how many chips each group gives: few groups first, then few fragments.

    All groups but one give all their chips; one gives the rest. If two groups gave
    parts, one of them could give all of its chips instead. Equal divisions take more
    from the lower groups.

    Args:
        free: Number of free chips of each group.
        count: Chips of the pod, at most the sum of `free`.
        loss: `Product.group_loss`.
    """
    numbers = range(1, len(free) + 1)
    divisions = next(
        divisions for n in numbers if (divisions := _divide(free, count, n))
    )

    def scatter(shares: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        lost = sum(loss[has - share] for has, share in zip(free, shares, strict=True))
        return lost, tuple([-share for share in shares])

    return min(divisions, key=scatter)


def _divide(free: tuple[int, ...], count: int, number: int) -> list[tuple[int, ...]]:
    """Return the divisions of `count` over exactly `number` groups: chips by group."""
    groups = [group for group, chips in enumerate(free) if chips]
    divisions = []
    for last in groups:
        others = [group for group in groups if group != last]
        for emptied in combinations(others, number - 1):
            missing = count - sum(free[group] for group in emptied)
            if 0 < missing <= free[last]:
                shares = [0] * len(free)
                for group in emptied:
                    shares[group] = free[group]
                shares[last] = missing
                divisions.append(tuple(shares))
    return divisions


def _choose_emptiest_first(product: Product, free: int, count: int) -> int:
    if free.bit_count() < count:
        return 0
    #: [number of free chips of a group] = free chips of all groups with that number
    chips_by_fill = [0] * (product.group_size + 1)
    for group in product.groups:
        part = free & group
        chips_by_fill[part.bit_count()] |= part
    chosen = 0
    for chips in chips_by_fill:
        missing = count - chosen.bit_count()
        if chips.bit_count() >= missing:
            return chosen | lowest(chips, missing)  # equal groups by their ids
        chosen |= chips
    return chosen


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
