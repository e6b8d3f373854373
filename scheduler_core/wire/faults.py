"""Keys about faults in a node's ConfigMap, beside `DeviceInfoCfg`, byte for byte.

`ManuallySeparateNPU` is a list of chips that people may edit.
`UpgradeFaultReason` has the reasons for levels that differ from a fault code's own.
`SwitchInfoCfg` is the state of the switches of an A3 server, always healthy here: no
driver of the agent tells their faults.

Source:
    MindCluster's device plugin, `pkg/kubeclient/client_server.go`,
    `pkg/common/proto.go`, `pkg/common/device.go` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from scheduler_core.products.table import Product
from scheduler_core.wire.annotations import (
    WireError,
    chip_name,
    describe_chips,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
)
from scheduler_core.wire.gojson import go_json
from scheduler_core.wire.typed import (
    as_array,
    as_integer,
    as_object,
    as_string,
    parse_json,
)

SEPARATED_KEY = "ManuallySeparateNPU"
UPGRADES_KEY = "UpgradeFaultReason"
SWITCH_KEY = "SwitchInfoCfg"


class _Level(NamedTuple):
    """Consequence of a chip fault of one level."""

    #: whether the chip stays in service
    is_mild: bool = False
    #: whether it stays in service while a pod uses it
    is_by_use: bool = False
    #: whether such a fault of the network makes the chip's network unhealthy
    unlinks: bool = False
    #: seconds for which the fault must last before the chip's pod moves; None: it stays
    settle_s: float | None = None


#: Levels of chip faults, the most serious first; the last means no fault.
#: PreSeparateNPU moves nothing: the chip is separated once its pod has ended.
_LEVELS: Mapping[str, _Level] = MappingProxyType(
    {
        "ManuallySeparateNPU": _Level(unlinks=True, settle_s=0.0),
        "SeparateNPU": _Level(unlinks=True, settle_s=0.0),
        "PreSeparateNPU": _Level(is_by_use=True, unlinks=True),
        "RestartNPU": _Level(settle_s=0.0),
        "FreeRestartNPU": _Level(is_by_use=True, settle_s=0.0),
        "RestartBusiness": _Level(settle_s=10.0),
        "RestartRequest": _Level(settle_s=10.0),
        "SubHealthFault": _Level(is_mild=True, unlinks=True),
        "NotHandleFault": _Level(is_mild=True),
        "NormalNPU": _Level(is_mild=True),
    }
)
_RANKS = {level: rank for rank, level in enumerate(_LEVELS)}
#: level of what is no fault
NO_FAULT = list(_LEVELS)[-1]
_UNLINK = frozenset(level for level, row in _LEVELS.items() if row.unlinks)
#: {(whether the fault is of the network, whether chip or network is unhealthy): levels}
_POSSIBLE: Mapping[tuple[bool, bool], frozenset[str]] = MappingProxyType(
    {
        (False, False): frozenset(
            level for level, row in _LEVELS.items() if row.is_mild or row.is_by_use
        ),
        (False, True): frozenset(
            level for level, row in _LEVELS.items() if not row.is_mild
        ),
        (True, False): frozenset(_LEVELS) - _UNLINK,
        (True, True): _UNLINK,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReason:
    """Reason for a level of a chip's fault that differs from the level of its code."""

    #: physical id
    chip: int
    #: hexadecimal fault code; "" when a person has separated the chip
    code: str
    level: str
    #: `FaultFrequency`, `FaultDuration` or `FaultAutofill`
    type: str
    #: start of the level, in milliseconds since 1970
    time_ms: int


def rank_level(level: str) -> int:
    """Return the rank of a fault level: smaller is worse, an unknown level is worst."""
    return _RANKS.get(level, -1)


def moves_after_s(level: str) -> float | None:
    """Return how long a fault of a pod's chip lasts before the pod moves.

    None if faults of the level move no pod. An unknown level moves it at once.
    """
    row = _LEVELS.get(level)
    return 0.0 if row is None else row.settle_s


def is_possible(level: str, *, network: bool, unhealthy: bool) -> bool:
    """Return whether a chip can be in this state if its worst fault has this level.

    An unknown level may do either. A level may differ from the state where it does not
    explain the state, such as that of the healthy chip of a card with a broken one.

    Args:
        network: Whether level and state are those of the chip's network.
        unhealthy: Whether the chip is out of service, or its network is unhealthy.
    """
    return level not in _LEVELS or level in _POSSIBLE[network, unhealthy]


def parse_separated(
    text: str, product: Product, other_products: Iterable[Product] = ()
) -> tuple[int, ...]:
    """Parse the chips that a person or a program has separated, ascending.

    Blanks, empty elements and repeated names are allowed, since people write the text.

    Args:
        text: Value of `ManuallySeparateNPU`.
        product: Row of the chips to return.
        other_products: Other product lines of the node, whose chips may be named too.

    Raises:
        WireError: A name is that of no chip of these products.
    """
    products = sorted((product, *other_products), key=lambda row: row.resource)
    for index, name in enumerate(_names(text)):
        if not _is_of(name, products):
            path, expected = f"{SEPARATED_KEY}[{index}]", map(describe_chips, products)
            raise WireError(path, expected=" or ".join(expected), found=name)
    return parse_separated_names(text, product)


def parse_separated_names(text: str, product: Product) -> tuple[int, ...]:
    """Parse the product's chips in a text, ascending, and ignore all else.

    For a text that `parse_separated` rejects.
    """
    chip_names = [name for name in _names(text) if _is_of(name, [product])]
    return parse_chip_names(chip_names, product, path=SEPARATED_KEY)


def _names(text: str) -> list[str]:
    """Return the names in a list that people write, without repetitions."""
    parts = dict.fromkeys(part.strip() for part in text.split(","))
    return [name for name in parts if name]


def _is_of(name: str, products: Iterable[Product]) -> bool:
    """Return whether a name is that of a chip of any of these products."""
    for product in products:
        try:
            parse_chip(name, product, path="")
        except WireError:
            continue
        return True
    return False


def render_upgrades_of_lines(
    lines: Iterable[tuple[Iterable[UpgradeReason], Product]],
) -> str:
    """Render the text under `UpgradeFaultReason` for several product lines."""
    by_chip: dict[str, list[dict[str, object]]] = {}
    for reasons, product in lines:
        for reason in reasons:
            by_chip.setdefault(chip_name(reason.chip, product), []).append(
                {
                    "upgrade_time": reason.time_ms,
                    "fault_code": reason.code,
                    "fault_level": reason.level,
                    "upgrade_type": reason.type,
                }
            )
    return go_json({name: by_chip[name] for name in sorted(by_chip)})


def parse_upgrades(
    text: str, product: Product, other_products: Sequence[Product] = ()
) -> tuple[UpgradeReason, ...]:
    """Parse the text under `UpgradeFaultReason` for the chips of one product.

    Chips of a product line that the node does not have are left out.
    A program wrote them when the node had that line.

    Args:
        text: Value of `UpgradeFaultReason`.
        product: Row of the chips to return.
        other_products: Other product lines of the node, whose chips may be named too.

    Raises:
        WireError: Not JSON, a field of the wrong type, or no name of a chip.
    """
    prefixes = tuple(row.chip_prefix for row in (product, *other_products))
    root = as_object(parse_json(text, UPGRADES_KEY), UPGRADES_KEY)
    return tuple(
        _parse_reason(item, product, name, f"{UPGRADES_KEY}[{name!r}][{index}]")
        for name, reasons in root.items()
        if not _is_of(name, other_products)
        and (name.startswith(prefixes) or not is_of_another_line(name, product))
        for index, item in enumerate(as_array(reasons, f"{UPGRADES_KEY}[{name!r}]"))
    )


def _parse_reason(
    item: object, product: Product, name: str, path: str
) -> UpgradeReason:
    fields = as_object(item, path)
    return UpgradeReason(
        chip=parse_chip(name, product, path=UPGRADES_KEY),
        code=as_string(fields.get("fault_code"), f"{path}.fault_code"),
        level=as_string(fields.get("fault_level"), f"{path}.fault_level"),
        type=as_string(fields.get("upgrade_type"), f"{path}.upgrade_type"),
        time_ms=as_integer(fields.get("upgrade_time"), f"{path}.upgrade_time"),
    )


def render_switch(update_time: int) -> str:
    """Render the text under `SwitchInfoCfg` of a server without switch faults.

    clusterd keeps the faults that it read last if the key is missing.

    Args:
        update_time: Time of the report. Unit: Unix seconds.
    """
    return go_json(
        {
            "FaultCode": [],
            "FaultLevel": "",
            "UpdateTime": update_time,
            "NodeStatus": "Healthy",
            "FaultTimeAndLevelMap": {},
        }
    )
