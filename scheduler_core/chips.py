"""Which chips of one node: the tightest group by the product's preference.

A set of chips of one node is a bit mask: bit i is the chip with physical id i. The
answer for every mask and count is computed once per product, so that a decision is
one look-up; the alternative, to search each time, costs a hundred times as much.
Equal groups go to the lower one, and within a group the lowest ids go first.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations

from scheduler_core.products import Product
from scheduler_core.reasons import Reason


def mask_of(ids: Iterable[int]) -> int:
    """The mask of the chips with these physical ids, in any order.

    Raises:
        ValueError: An id is negative.
    """
    mask = 0
    for chip in ids:
        mask |= 1 << chip
    return mask


@cache
def ids_of(mask: int) -> tuple[int, ...]:
    """The physical ids in `mask`, ascending."""
    return tuple(chip for chip in range(mask.bit_length()) if mask >> chip & 1)


def choose(product: Product, free: int, count: int) -> int:
    """Choose which chips of one node a pod gets.

    The group whose number of free chips comes first in the product's preference for
    `count` wins, so that whole groups stay whole for those who need them; equal
    groups go to the lower one. A count above the size of a group takes whole groups.

    Args:
        product: The node's row.
        free: Mask of the chips that may be given; any subset of the product's.
        count: Chips wanted by the whole pod.

    Returns:
        A mask of `count` chips, all in `free`; 0 when the node cannot serve.

    Cost:
        One look-up.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Affinity Policy Description",
        priority 1.
    """
    by_count = table(product)
    return by_count[count][free] if 0 < count < len(by_count) else 0


def complete(product: Product, free: int, taken: int, count: int) -> int:
    """Choose `count` more chips for a pod that has some already.

    Args:
        product: The node's row.
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
    if count < 1:
        return 0
    wanted = count + taken.bit_count()
    for home in _homes(product, wanted):
        more = _lowest(free & home, count)
        if not taken & ~home and more and is_legal(product, taken | more):
            return more
    return 0


def is_legal(product: Product, chips: int) -> bool:
    """Whether a pod may have exactly these chips.

    A legal count, inside one group; or whole groups, when it is more than a group.
    """
    count = chips.bit_count()
    if count not in product.counts or chips & ~product.all_chips:
        return False
    if count <= product.group_size:
        return any(not chips & ~group for group in product.groups)
    return all(chips & group in (0, group) for group in product.groups)


def why_not(product: Product, free: int, healthy: int, count: int) -> Reason | None:
    """Why a node cannot serve `count` chips: the first reason that is true.

    In this order: no pod of this product may have so many; even with nothing on the
    node its healthy chips would not do; too few chips are free; they are not together.

    Args:
        product: The node's row.
        free: Mask of its free chips, all of them healthy.
        healthy: Mask of its healthy chips.
        count: Chips wanted.

    Returns:
        The reason, or None when the node can serve.
    """
    if count not in product.counts:
        return Reason.ILLEGAL_COUNT
    if choose(product, free, count):
        return None
    if not choose(product, healthy, count):
        return Reason.CHIP_UNHEALTHY
    if free.bit_count() < count:
        return Reason.TOO_FEW_FREE
    return Reason.GROUP_TOO_SMALL


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
    if count not in product.counts:
        return 0
    if count > product.group_size:
        whole = [group for group in product.groups if free & group == group]
        wanted = sum(whole[: count // product.group_size])
        return wanted if wanted.bit_count() == count else 0
    for left in product.group_preference[count]:
        for group in product.groups:
            if (free & group).bit_count() == left:
                return _lowest(free & group, count)
    return 0


def _homes(product: Product, count: int) -> Iterator[int]:
    """Where `count` chips of one pod may lie: a group, or as many whole groups."""
    if count <= product.group_size:
        yield from product.groups
    else:
        for some in combinations(product.groups, count // product.group_size):
            yield sum(some)


def _lowest(mask: int, count: int) -> int:
    """The `count` lowest chips of `mask`; 0 when it has fewer."""
    return mask_of(ids_of(mask)[:count]) if mask.bit_count() >= count else 0
