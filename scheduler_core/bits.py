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
    ids: tuple[int, ...] = ()
    first = 0
    while mask:
        ids += _ids_of_byte(mask & 0xFF, first)
        mask >>= 8
        first += 8
    return ids


@cache
def _ids_of_byte(byte: int, first: int) -> tuple[int, ...]:
    return tuple(first + bit for bit in range(8) if byte >> bit & 1)


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
