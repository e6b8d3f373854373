"""Find the product rows of a server, from what its chips report. Pure functions.

A product row describes one server type. The first line below that fits the chips of a
product line gives the key of their row:

    what the chips report                            key of the row
    -----------------------------------------------  ------------------------------
    board of an Atlas A3, an id of 8 or more         atlas-a3-16
    board of an Atlas A3                             atlas-a3-8
    name begins with Ascend950, an id of 8 or more   npu-flat-16
    name begins with Ascend950                       npu-flat-8
    310P, and the card is sold as a Duo              atlas-300i-duo-chip
    310P                                             atlas-310p
    310, 310B                                        atlas-300i-chip
    910B on an inference board, no id above 1        flat-2
    910B, an id of 8 or more                         atlas-a2-box16
    910B                                             atlas-a2-8
    910 on Atlas 300T cards                          a300t
    910, no id above 3                               atlas-800-training-half
    910                                              atlas-800-training

An id is the physical id of a chip. A line with 310P also fits names that begin with I2.
A line with 910B fits names that begin with 910B or A2G and a digit. If an Atlas A3 chip
reports a SuperPoD, "-superpod" is appended to the key of the row.

Source:
    MindCluster, `devmanager` and `pkg/common` (at 22bb3d98): boards and names.
"""

import re
from collections.abc import Iterable, Sequence

from agent.devices.board_size import UnknownMachineError, fit_row, order_rows
from agent.devices.dcmi.values import Identity
from scheduler_core.node import chips as chip_sets
from scheduler_core.products import table
from scheduler_core.products.table import GroupKind, Product

_A3_BOARDS = frozenset({*range(0xB0, 0xB5), 0x81, 0x83, 0xD1, 0xD3})
_INFERENCE_BOARDS = frozenset({0x28, 0x29})
_A5 = re.compile(r"Ascend950")
_310P = re.compile(r"310P\d?|I2\d?")
_310 = re.compile(r"310")
_910B = re.compile(r"910B\d|A2G\d")
_910 = re.compile(r"910")
#: The driver's value for a number that it does not have.
_NONE = 0xFFFFFFFF
_TEMPLATE = re.compile(r"vir(\d\d)(?:_(\d)c)?((?:_[0-9a-z]+)*)")
_DUO = "Duo"
_300T = "300T"


def products_of(chips: Iterable[Identity]) -> tuple[Product, ...]:
    """Return the rows of the product table for a server's chips, one per product line.

    The row with the most chips comes first. Rows with equally many chips are ordered by
    resource name.

    Args:
        chips: All chips of the server, at least one.

    Raises:
        UnknownMachineError: The model of a chip is not supported, or the chip's id is
            too high for the row. Or the ids do not show how the chips are connected.
    """
    lines: dict[str, list[Identity]] = {}
    for chip in chips:
        lines.setdefault(line_of(chip), []).append(chip)
    all_ids = chip_sets.mask_of(c.physical_id for line in lines.values() for c in line)
    return order_rows(_product_of(line, all_ids) for line in lines.values())


def _product_of(line: Sequence[Identity], all_ids: int) -> Product:
    """Return the row of the product table for the chips of one product line.

    Args:
        line: All chips of the server that belong to this product line, at least one.
        all_ids: Mask of the physical ids of all chips of the server.

    Raises:
        UnknownMachineError: The reasons are those of `products_of`.
    """
    ids = [chip.physical_id for chip in line]
    is_in_superpod = any(_is_id(chip.super_pod_id) for chip in line)
    key = _key(line[0], max(ids), in_superpod=is_in_superpod)
    if not key:
        raise UnknownMachineError(
            f"chips {line[0].name!r} on board {line[0].board_id:#x} are of no family "
            "that is served; --product says how to treat them"
        )
    row = fit_row(key, max(ids), all_ids & ~chip_sets.mask_of(ids))
    absent_before = row.absent & ((1 << min(ids)) - 1)
    if absent_before and row.group_kind not in (GroupKind.CARD, GroupKind.NONE):
        raise UnknownMachineError(
            f"chips {line[0].name!r} have ids from {min(ids)} on, behind those of "
            "another product line, which does not tell how they are connected; "
            "--product names a line that is served alone"
        )
    return row


def line_of(chip: Identity) -> str:
    """Return the product line of a chip, like "Ascend910"; "" if its model is unknown.

    In Kubernetes, the chip with physical id 3 of that line has the name "Ascend910-3".
    """
    key = _key(chip, 0, in_superpod=False)
    return table.by_key(key).chip_prefix.rstrip("-") if key else ""


def _key(chip: Identity, highest: int, *, in_superpod: bool) -> str:
    """Return the key of the product table's row for a chip; "" if its model is unknown.

    Args:
        chip: Any chip of the product line.
        highest: The highest physical id of that product line.
        in_superpod: Whether a chip of that product line reports a SuperPoD.
    """
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


def _is_id(number: int) -> bool:
    return 0 <= number < _NONE


def kind_of(template: str) -> str:
    """Convert the template name of a virtual device to the device's kind.

    The kind is the end of the device's resource name in Kubernetes. "vir04" becomes
    "4c", "vir04_3c" becomes "4c.3cpu", and "vir10_3c_32g" becomes "10c.3cpu.32g". The
    result is "" if `template` is no name of a template.
    """
    parsed = _TEMPLATE.fullmatch(template)
    if parsed is None:
        return ""
    cores, cpus, suffix = parsed.groups()
    kind = f"{int(cores)}c" + (f".{cpus}cpu" if cpus else "")
    return kind + suffix.replace("_", ".")
