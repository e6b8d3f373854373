"""Which server this is, by what its chips say of themselves. Pure.

    what the chips say                               row of the table of products
    -----------------------------------------------  ------------------------------
    board of an Atlas A3                             atlas-a3-16, atlas-a3-8; the row
                                                     of a SuperPoD where there is one
    name begins Ascend950                            npu-flat-16, npu-flat-8
    310P, and the card is sold as a Duo              atlas-300i-duo-chip
    310P                                             atlas-310p
    310, 310B                                        atlas-300i-chip
    910B on an inference board, two chips at most    flat-2
    910B, chips from 8 on                            atlas-a2-box16
    910B                                             atlas-a2-8
    910 on Atlas 300T cards                          a300t
    910, chips 0 to 3 only                           atlas-800-training-half
    910                                              atlas-800-training

Source:
    MindCluster, `devmanager` and `pkg/common` (at 22bb3d98): boards and names.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from agent.devices.dcmi.survey import Identity
from scheduler_core import products
from scheduler_core.errors import UnknownProductError
from scheduler_core.products import GroupKind, Product

_A3_BOARDS = frozenset({*range(0xB0, 0xB5), 0x81, 0x83, 0xD1, 0xD3})
_INFERENCE_BOARDS = frozenset({0x28, 0x29})
_A5 = re.compile(r"Ascend950")
_310P = re.compile(r"310P\d?|I2\d?")
_310 = re.compile(r"310")
_910B = re.compile(r"910B\d|A2G\d")
_910 = re.compile(r"910")
#: What the driver says for a number that it does not have.
_NONE = 0xFFFFFFFF
_TEMPLATE = re.compile(r"vir(\d\d)(?:_(\d)c)?((?:_[0-9a-z]+)*)")
_DUO = "Duo"
_300T = "300T"


class UnknownMachineError(ValueError):
    """No row of the table of products is like these chips."""


def product_of(chips: Iterable[Identity]) -> Product:
    """The row of the table by which a server's chips are given out.

    Args:
        chips: All of one product line; at least one.

    Raises:
        UnknownMachineError: They are of no family that is served, or too many.
    """
    chips = tuple(chips)
    lines = lines_of(chips)
    if len(lines) > 1:
        found = ", ".join(f"{count} {name}" for name, count in lines.items())
        raise UnknownMachineError(
            f"chips of several product lines ({found}); --product says which of them "
            "this agent serves"
        )
    highest = max(chip.physical_id for chip in chips)
    key = _key(
        chips[0], highest, in_superpod=any(_is_id(c.super_pod_id) for c in chips)
    )
    if not key:
        chip = chips[0]
        raise UnknownMachineError(
            f"chips {chip.name!r} on board {chip.board_id:#x} are of no family that "
            "is served; --product says how to treat them"
        )
    return sized(key, highest)


def lines_of(chips: Iterable[Identity]) -> dict[str, int]:
    """The product lines of some chips, and how many chips each has."""
    return dict(sorted(Counter(map(line_of, chips)).items()))


def line_of(chip: Identity) -> str:
    """The product line of a chip: the beginning of its row's names."""
    key = _key(chip, 0, in_superpod=False)
    return products.by_key(key).chip_prefix.rstrip("-") if key else chip.name


def _key(chip: Identity, highest: int, *, in_superpod: bool) -> str:
    """The key of the row; "" for none."""
    if chip.board_id in _A3_BOARDS:
        size = 16 if highest >= 8 else 8
        return f"atlas-a3-{size}" + ("-superpod" if in_superpod else "")
    for pattern, key in (
        (_A5, "npu-flat-16" if highest >= 8 else "npu-flat-8"),
        (_310P, _key_of_310p(chip)),
        (_310, "atlas-300i-chip"),
        (_910B, _key_of_910b(chip, highest)),
        (_910, _key_of_910(chip, highest)),
    ):
        if pattern.match(chip.name):
            return key
    return ""


def _key_of_310p(chip: Identity) -> str:
    return "atlas-300i-duo-chip" if _DUO in chip.product_type else "atlas-310p"


def _key_of_910b(chip: Identity, highest: int) -> str:
    if chip.board_id in _INFERENCE_BOARDS and highest < 2:
        return "flat-2"
    return "atlas-a2-box16" if highest >= 8 else "atlas-a2-8"


def _key_of_910(chip: Identity, highest: int) -> str:
    if _300T in chip.product_type:
        return "a300t"
    return "atlas-800-training-half" if highest < 4 else "atlas-800-training"


@cache
def sized(key: str, highest: int) -> Product:
    """A row of the table, cut to the chips of this server where the row is a limit.

    Servers of cards have as many chips as somebody has put in: their row says how
    many there may be, and the kubelet must not be told of more than there are.

    Args:
        key: Of the row.
        highest: The highest physical id that was seen.

    Raises:
        UnknownMachineError: There is no such row, or it has no such chip.
    """
    try:
        row = products.by_key(key)
    except UnknownProductError as error:
        raise UnknownMachineError(str(error)) from error
    if highest >= row.chip_count:
        raise UnknownMachineError(
            f"expected chips 0 to {row.chip_count - 1} of a {row.name}, found chip "
            f"{highest}"
        )
    if row.group_kind not in (GroupKind.CARD, GroupKind.NONE) or row.capacity_staged:
        return row
    group = row.group_size if row.group_kind is GroupKind.CARD else 1
    count = (highest // group + 1) * group
    return replace(
        row,
        chip_count=count,
        group_size=row.group_size if row.group_kind is GroupKind.CARD else count,
        ways=MappingProxyType({n: w for n, w in row.ways.items() if n <= count}),
    )


def _is_id(said: int) -> bool:
    return 0 <= said < _NONE


def kind_of(template: str) -> str:
    """What resources call the virtual devices of a template; "" for no template.

    "vir04" is "4c", "vir04_3c" is "4c.3cpu", "vir10_3c_32g" is "10c.3cpu.32g".
    """
    parsed = _TEMPLATE.fullmatch(template)
    if parsed is None:
        return ""
    cores, cpus, rest = parsed.groups()
    kind = f"{int(cores)}c" + (f".{cpus}cpu" if cpus else "")
    return kind + rest.replace("_", ".")
