"""Reduce rows of the product table to the chips that a server has. Pure functions.

A row of that table describes one type of server, with the most chips it can have.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from scheduler_core.errors import UnknownProductError
from scheduler_core.products import table
from scheduler_core.products.table import GroupKind, Product


class UnknownMachineError(ValueError):
    """The chips of a server cannot be matched to rows of the product table."""


def fit_row(key: str, highest: int, others: int = 0) -> Product:
    """Return a row of the product table, reduced to the chips that this server has.

    A row with rings, modules or meshes, or with `capacity_staged`, keeps its number of
    chips. Any other row is shortened, because a server can have fewer plug-in cards
    than its row. It ends with the card of chip `highest`, or with this chip if the row
    has no cards. So the kubelet is offered no missing chips above the end.

    Args:
        key: Key of the row.
        highest: The highest physical id among the server's chips of this product line.
        others: Mask of ids to mark as absent: they are not chips of this product line.

    Raises:
        UnknownMachineError: No row has this key, or the row has no chip `highest`.
    """
    return _fit_row_cached(key, highest, others)


@cache
def _fit_row_cached(key: str, highest: int, others: int) -> Product:
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


def order_rows(rows: Iterable[Product]) -> tuple[Product, ...]:
    """Sort the product rows of one server: most chips first, then by resource name."""
    return tuple(
        sorted(rows, key=lambda row: (-row.all_chips.bit_count(), row.resource))
    )
