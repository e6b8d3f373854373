"""Find the product rows of a server, from what its chips report. Pure functions.

A product row describes one server type. The first line below that fits the chips of a
product line gives the key of their row:

    what the chips report                            key of the row
    -----------------------------------------------  ------------------------------
    board of an Atlas A3, an id of 8 or more         atlas-a3-16
    board of an Atlas A3                             atlas-a3-8
    name begins with Ascend950, an id of 8 or more   npu-flat-16
    name begins with Ascend950                       npu-flat-8
    310P, and all cards are sold as Duo              atlas-300i-duo-chip
    310P                                             atlas-310p
    310, 310B                                        atlas-300i-chip
    910B on an inference board, no id above 7        atlas-300i-a2
    910B, an id of 8 or more                         atlas-a2-box16
    910B                                             atlas-a2-8
    910 on Atlas 300T cards                          a300t
    910, no id above 3                               atlas-800-training-half
    910                                              atlas-800-training

An id is the physical id of a chip. A line with 310P also fits names that begin with I2.
A line with 910B fits names that begin with 910B or A2G and a digit. If an Atlas A3 chip
reports a SuperPoD, "-superpod" is appended to the key of the row.

A fact of the server, like its board, is that of the first chip that has told it: each
call of the driver may fail for any chip at any time. But a server with Duo cards and
others is none with Duo cards, as in MindCluster (`IsContainAll300IDuo`).

Source:
    MindCluster, `devmanager` and `pkg/common` (at 22bb3d98): boards and names.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from agent.devices.board_size import UnknownMachineError, fit_row, order_rows
from agent.devices.dcmi.values import NO_NUMBER, Identity, SuperPodPlace
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
_TEMPLATE = re.compile(r"vir(\d\d)(?:_(\d)c)?((?:_[0-9a-z]+)*)")
_DUO = "Duo"
_DUO_ROW = "atlas-300i-duo-chip"
_300T = "300T"
_SOC_A1 = "Atlas 200I SoC A1"


def refuse_soc(chips: Iterable[Identity]) -> None:
    """Raise `UnknownMachineError` if a chip is of an Atlas 200I SoC A1."""
    if any(chip.product_type == _SOC_A1 for chip in chips):
        raise UnknownMachineError(
            f"an {_SOC_A1} is not served: its driver works in a container only beside "
            "two daemons that the agent does not start"
        )


def products_of(chips: Sequence[Identity]) -> tuple[Product, ...]:
    """Return the rows of the product table for a server's chips, one per product line.

    The row with the most chips comes first. Rows with equally many chips are ordered by
    resource name. A chip that has not told its model counts to the only line there is.

    Args:
        chips: All chips of the server, at least one.

    Raises:
        UnknownMachineError: The model of a chip is not supported, or the chip's id is
            too high for the row. Or the ids do not show how the chips are connected.
    """
    lines = _lines(chips)
    all_ids = chip_sets.mask_of(c.physical_id for line in lines.values() for c in line)
    return order_rows(_product_of(line, all_ids) for line in lines.values())


def products_by_inventory(
    chips: Sequence[Identity], inventory: Mapping[str, int]
) -> tuple[Product, ...]:
    """Return the rows of a server some chips of which are missing; () if not certain.

    Missing chips are taken for such as the others of their product line. It is not
    certain if a line has no chip that says what it is, or a chip is not in the
    inventory, or all chips are of Duo cards: one that is missing may be of another.

    Args:
        chips: Chips of the server, not all.
        inventory: {product line: mask of its chips} of an earlier time.
    """
    lines = _lines(chips)
    if lines.keys() != inventory.keys():
        return ()
    missing = []
    for line, members in lines.items():
        known = [chip for chip in members if _is_model_known(chip)]
        ids = chip_sets.mask_of(chip.physical_id for chip in members)
        if not known or find_unknown(known) or ids & ~inventory[line]:
            return ()
        lost_ids = chip_sets.ids_of(inventory[line] & ~ids)
        missing += [replace(known[0], physical_id=chip) for chip in lost_ids]
    try:
        rows = products_of([*chips, *missing])
    except UnknownMachineError:
        return ()
    return () if any(row.key == _DUO_ROW for row in rows) else rows


def find_unknown(chips: Sequence[Identity]) -> str:
    """Return which fact no chip has told yet that the row depends on; "" if none."""
    silent = [chip.physical_id for chip in chips if not _is_model_known(chip)]
    if silent:
        listed = ", ".join(map(str, silent))
        return f"the driver does not tell the model and board of chip {listed}"
    for line, members in _lines(chips).items():
        facts = facts_of(members)
        if facts.board_id in _A3_BOARDS and facts.superpod is None:
            return f"no chip of {line} tells its SuperPoD"
        if facts.product_type is None and (_310P.match(facts.name) or _is_910(facts)):
            return f"no chip of {line} tells its product type"
    return ""


def find_contradiction(
    products: Sequence[Product], chips: Sequence[Identity], *, is_chosen: bool = False
) -> str:
    """Return what shows that rows are not, or no longer, those of a server; "" if none.

    A chip that is missing, and a fact that was not told, show nothing.

    Args:
        products: The rows that are served.
        chips: Chips of the server, perhaps not all.
        is_chosen: Whether people have chosen the row: the facts of chips do not count.
    """
    rows = {row.chip_prefix.rstrip("-"): row for row in products}
    for line, members in _lines(chips).items():
        row = rows.get(line)
        if row is None and line:
            return f"chip {members[0].physical_id} is of {line}, which is not served"
        if row is None:
            continue
        ids = [chip.physical_id for chip in members]
        outside = [chip for chip in ids if not row.all_chips >> chip & 1]
        if outside:
            return f"chip {outside[0]} is none of the {row.name} that is served"
        key = _key(facts_of(members), row.chip_count - 1)
        is_whole = not row.all_chips & ~chip_sets.mask_of(ids)
        if key == _DUO_ROW and not is_whole:
            continue  # a chip that is missing may be of another card
        if not is_chosen and not find_unknown(members) and key != row.key:
            return f"the chips are those of {key!r}, and served as {row.key!r}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a product line, each told by some chip of it."""

    #: "" when not told
    name: str
    #: 0 when not told
    board_id: int
    ai_core_count: int = 0
    product_type: str | None
    superpod: SuperPodPlace | None = None


def facts_of(line: Iterable[Identity]) -> Facts:
    """Return the facts of a product line: of the first chip that has told each.

    The type of the cards is that of a card that is no Duo, if there is one.
    """
    members = list(line)
    superpods = [chip.superpod for chip in members if chip.superpod is not None]
    types = [chip.product_type for chip in members if chip.product_type is not None]
    not_duo = [name for name in types if name and _DUO not in name]
    in_superpod = [place for place in superpods if _is_id(place.super_pod_id)]
    return Facts(
        name=next((chip.name for chip in members if chip.name), ""),
        ai_core_count=next((c.ai_core_count for c in members if c.ai_core_count), 0),
        board_id=next((c.board_id for c in members if c.board_id is not None), 0),
        product_type=next(iter((*not_duo, *filter(None, types), *types)), None),
        superpod=next(iter((*in_superpod, *superpods)), None),
    )


def _is_model_known(chip: Identity) -> bool:
    return bool(chip.name) and chip.board_id is not None


def _lines(chips: Iterable[Identity]) -> dict[str, list[Identity]]:
    """Return the chips of each product line; "" for models that are not known.

    If there is one line only, it also has the chips that have not told their model.
    """
    lines: dict[str, list[Identity]] = {}
    for chip in chips:
        lines.setdefault(line_of(chip), []).append(chip)
    known = [line for line in lines if line]
    unknown = lines.get("", [])
    if len(known) == 1 and all(_may_be_of(lines[known[0]], chip) for chip in unknown):
        lines[known[0]] += lines.pop("", [])
    return lines


def _may_be_of(line: Sequence[Identity], chip: Identity) -> bool:
    """Whether a chip has told nothing that is not so of a product line."""
    is_named_so = not chip.name or any(chip.name == other.name for other in line)
    return is_named_so and not (chip.name and chip.board_id)


def _product_of(line: Sequence[Identity], all_ids: int) -> Product:
    """Return the row of the product table for the chips of one product line.

    Args:
        line: All chips of the server that belong to this product line, at least one.
        all_ids: Mask of the physical ids of all chips of the server.

    Raises:
        UnknownMachineError: The reasons are those of `products_of`.
    """
    ids = [chip.physical_id for chip in line]
    facts = facts_of(line)
    key = _key(facts, max(ids))
    if not key:
        raise UnknownMachineError(
            f"chips {facts.name!r} on board {facts.board_id:#x} are of no family "
            "that is served; --product says how to treat them"
        )
    row = fit_row(key, max(ids), all_ids & ~chip_sets.mask_of(ids))
    absent_before = row.absent & ((1 << min(ids)) - 1)
    if absent_before and row.group_kind not in (GroupKind.CARD, GroupKind.NONE):
        raise UnknownMachineError(
            f"chips {facts.name!r} have ids from {min(ids)} on, behind those of "
            "another product line, which does not tell how they are connected; "
            "--product names a line that is served alone"
        )
    return row


def line_of(chip: Identity) -> str:
    """Return the product line of a chip, like "Ascend910"; "" if its model is unknown.

    In Kubernetes, the chip with physical id 3 of that line has the name "Ascend910-3".
    """
    return _line(chip.name or "", chip.board_id or 0, chip.product_type)


@lru_cache(maxsize=256)
def _line(name: str, board_id: int, product_type: str | None) -> str:
    key = _key(Facts(name=name, board_id=board_id, product_type=product_type), 0)
    return table.by_key(key).chip_prefix.rstrip("-") if key else ""


def _key(facts: Facts, highest: int) -> str:
    """Return the key of the product table's row for a chip; "" if its model is unknown.

    Args:
        facts: Of the product line.
        highest: The highest physical id of that product line.
    """
    if facts.board_id in _A3_BOARDS:
        size = 16 if highest >= 8 else 8
        place = facts.superpod
        is_in_superpod = place is not None and _is_id(place.super_pod_id)
        return f"atlas-a3-{size}" + ("-superpod" if is_in_superpod else "")
    for pattern, key in (
        (_A5, "npu-flat-16" if highest >= 8 else "npu-flat-8"),
        (_310P, _DUO_ROW if _DUO in (facts.product_type or "") else "atlas-310p"),
        (_310, "atlas-300i-chip"),
        (_910B, _key_of_910b(facts, highest)),
        (_910, _key_of_910(facts, highest)),
    ):
        if pattern.match(facts.name):
            return key
    return ""


def _is_910(facts: Facts) -> bool:
    """Whether a line is of the first generation, for which product types differ."""
    return bool(_910.match(facts.name)) and not _910B.match(facts.name)


def _key_of_910b(facts: Facts, highest: int) -> str:
    if facts.board_id in _INFERENCE_BOARDS and highest < 8:
        return "atlas-300i-a2"
    return "atlas-a2-box16" if highest >= 8 else "atlas-a2-8"


def _key_of_910(facts: Facts, highest: int) -> str:
    if _300T in (facts.product_type or ""):
        return "a300t"
    return "atlas-800-training-half" if highest < 4 else "atlas-800-training"


def _is_id(number: int) -> bool:
    return 0 <= number < NO_NUMBER


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
