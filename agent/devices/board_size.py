"""The row of the table of products that a server's chips of one line are. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from scheduler_core.errors import UnknownProductError
from scheduler_core.products import table
from scheduler_core.products.table import GroupKind, Product


class UnknownMachineError(ValueError):
    """No row of the table of products is like these chips."""


def sized(key: str, highest: int, others: int = 0) -> Product:
    """A row of the table, cut to the chips of this server where the row is a limit.

    Servers of cards have as many chips as somebody has put in: their row says how
    many there may be, and the kubelet must not be told of more than there are.
    Nor of ids that are another line's: each id of a server is one chip's.

    Args:
        key: Of the row.
        highest: The highest physical id that was seen.
        others: Mask of the ids of the server's other product lines.

    Raises:
        UnknownMachineError: There is no such row, or it has no such chip.
    """
    return _sized(key, highest, others)


@cache
def _sized(key: str, highest: int, others: int) -> Product:
    try:
        row = table.by_key(key)
    except UnknownProductError as error:
        raise UnknownMachineError(str(error)) from error
    if highest >= row.chip_count:
        raise UnknownMachineError(
            f"expected chips 0 to {row.chip_count - 1} of a {row.name}, found chip "
            f"{highest}"
        )
    if row.group_kind not in (GroupKind.CARD, GroupKind.NONE) or row.capacity_staged:
        others &= row.all_chips
        return replace(row, absent=others) if others else row
    group = row.group_size if row.group_kind is GroupKind.CARD else 1
    count = (highest // group + 1) * group
    return replace(
        row,
        chip_count=count,
        absent=others & ((1 << count) - 1),
        group_size=row.group_size if row.group_kind is GroupKind.CARD else count,
        ways=MappingProxyType({n: w for n, w in row.ways.items() if n <= count}),
    )


def ordered(rows: Iterable[Product]) -> tuple[Product, ...]:
    """The rows of one server: the one with the most chips first, then by resource."""
    return tuple(
        sorted(rows, key=lambda row: (-row.all_chips.bit_count(), row.resource))
    )
