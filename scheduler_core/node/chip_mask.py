"""Sets of chips as bit masks: bit i is the chip with physical id i."""

from collections.abc import Iterable
from functools import cache, lru_cache

#: masks whose ids are remembered: as many as there are of 16 chips
_REMEMBERED = 1 << 16


def mask_of(ids: Iterable[int]) -> int:
    """The mask of the chips with these physical ids, in any order.

    Raises:
        ValueError: An id is negative.
    """
    mask = 0
    for chip in ids:
        mask |= 1 << chip
    return mask


@lru_cache(maxsize=_REMEMBERED)
def ids_of(mask: int) -> tuple[int, ...]:
    """The physical ids in `mask`, ascending."""
    ids: list[int] = []
    for place, byte in enumerate(mask.to_bytes(mask.bit_length() + 7 >> 3, "little")):
        ids += _ids_of_bytes(place)[byte]
    return tuple(ids)


@cache
def _ids_of_bytes(place: int) -> tuple[tuple[int, ...], ...]:
    """The ids of every byte that has this place in a mask, 0 for the lowest."""
    ids = range(8 * place, 8 * place + 8)
    return tuple(
        tuple([chip for bit, chip in enumerate(ids) if byte >> bit & 1])
        for byte in range(256)
    )


def lowest(mask: int, count: int) -> int:
    """The `count` lowest chips of `mask`; 0 when it has fewer.

    Cost:
        A step for each eight ids.
    """
    if count >= mask.bit_count():
        return mask if count == mask.bit_count() else 0
    chosen = shift = 0
    while count:
        byte = mask >> shift & 0xFF
        here = byte.bit_count()
        chosen |= (byte if here <= count else _of_byte(byte, count)) << shift
        count -= min(here, count)
        shift += 8
    return chosen


@cache
def _of_byte(byte: int, count: int) -> int:
    for _ in range(byte.bit_count() - count):
        byte &= ~(1 << byte.bit_length() - 1)
    return byte


def kinds_of_groups(mask: int, size: int, number: int) -> int:
    """How many groups have how many of these chips: a number that says just that.

    Args:
        mask: The chips.
        size: Chips of a group; group g are the ids from `g * size` on.
        number: Chips of the node, of which `mask` has some.

    Returns:
        Eight bits for each number of chips from 1: how many groups have so many.
    """
    if 8 % size:
        group = (1 << size) - 1
        parts = (mask >> first & group for first in range(0, number, size))
        return sum(_kind(part.bit_count()) for part in parts)
    kinds = _kinds_of_byte(size)
    return sum([kinds[byte] for byte in mask.to_bytes(number + 7 >> 3, "little")])


def _kind(chips: int) -> int:
    return 1 << 8 * (chips - 1) if chips else 0


@cache
def _kinds_of_byte(size: int) -> tuple[int, ...]:
    """`kinds_of_groups` of each byte, that `size` divides."""
    group = (1 << size) - 1
    return tuple(
        sum(_kind((byte >> first & group).bit_count()) for first in range(0, 8, size))
        for byte in range(256)
    )
