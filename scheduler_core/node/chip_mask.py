"""Sets of chips as bit masks: bit i is the chip with physical id i."""

from collections.abc import Iterable
from functools import cache, lru_cache, reduce
from operator import or_

#: entries of the cache of `ids_of`: all masks of 16 chips
_REMEMBERED = 1 << 16


def mask_of(ids: Iterable[int]) -> int:
    """Return the mask of the chips with these physical ids, in any order.

    Raises:
        ValueError: An id is negative.
    """
    mask = 0
    for chip in ids:
        mask |= 1 << chip
    return mask


def union(masks: Iterable[int]) -> int:
    """Return the union of masks of chips; 0 if there are none."""
    return reduce(or_, masks, 0)


@lru_cache(maxsize=_REMEMBERED)
def ids_of(mask: int) -> tuple[int, ...]:
    """Return the physical ids in `mask`, ascending."""
    ids: list[int] = []
    for index, byte in enumerate(mask.to_bytes(mask.bit_length() + 7 >> 3, "little")):
        ids += _ids_by_byte(index)[byte]
    return tuple(ids)


@cache
def _ids_by_byte(index: int) -> tuple[tuple[int, ...], ...]:
    """Return the ids for each of the 256 values of byte `index` of a mask.

    Args:
        index: Byte of the mask, 0 for the lowest.
    """
    ids = range(8 * index, 8 * index + 8)
    return tuple(
        tuple([chip for bit, chip in enumerate(ids) if byte >> bit & 1])
        for byte in range(256)
    )


def lowest(mask: int, count: int) -> int:
    """Return the mask of the `count` lowest chips of `mask`; 0 when it has fewer.

    Cost:
        One step for each eight ids.
    """
    if count >= mask.bit_count():
        return mask if count == mask.bit_count() else 0
    chosen = shift = 0
    while count:
        byte = mask >> shift & 0xFF
        chips = byte.bit_count()
        chosen |= (byte if chips <= count else _lowest_of_byte(byte, count)) << shift
        count -= min(chips, count)
        shift += 8
    return chosen


@cache
def _lowest_of_byte(byte: int, count: int) -> int:
    for _ in range(byte.bit_count() - count):
        byte &= ~(1 << byte.bit_length() - 1)
    return byte


def count_groups_by_fill(mask: int, group_size: int, node_chips: int) -> int:
    """Count the groups that have 1, 2, 3 … chips in `mask`, packed into one integer.

    Args:
        mask: Chips of one node.
        group_size: Chips of a group; group g has the ids from `g * group_size` on.
        node_chips: Chips of the whole node, at least the length of `mask`.

    Returns:
        Eight bits for each number of chips from 1: the groups with that many chips.
    """
    if 8 % group_size:
        group = (1 << group_size) - 1
        parts = (mask >> first & group for first in range(0, node_chips, group_size))
        return sum(_one_group(part.bit_count()) for part in parts)
    fills = _fills_by_byte(group_size)
    return sum([fills[byte] for byte in mask.to_bytes(node_chips + 7 >> 3, "little")])


def _one_group(chips: int) -> int:
    return 1 << 8 * (chips - 1) if chips else 0


@cache
def _fills_by_byte(group_size: int) -> tuple[int, ...]:
    """Return `count_groups_by_fill` of each byte, for a `group_size` that divides 8."""
    group = (1 << group_size) - 1
    return tuple(
        sum(
            _one_group((byte >> first & group).bit_count())
            for first in range(0, 8, group_size)
        )
        for byte in range(256)
    )
