"""What a node's ConfigMap says of faults beside `DeviceInfoCfg`, byte for byte.

`ManuallySeparateNPU` is a list of chips that people may edit, `UpgradeFaultReason`
tells why a fault has another level than its code, `SwitchInfoCfg` how the switches of
an A3 server are.

Source: MindCluster's device plugin, `pkg/kubeclient/client_server.go`,
`pkg/common/proto.go`, `pkg/common/device.go` (at 22bb3d98).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scheduler_core.products.table import Product
from scheduler_core.wire.annotations import (
    WireError,
    chip_name,
    chips_of,
    is_of_another_line,
    parse_chip,
    parse_chip_names,
    render_chips,
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

#: {level of a switch's list: (what `FaultLevel` calls it, what the node then is)}
_SWITCH_LEVELS: Mapping[str, tuple[str, str]] = {
    "": ("", "Healthy"),
    "NotHandleFault": ("NotHandle", "Healthy"),
    "SubHealthFault": ("SubHealthFault", "SubHealthy"),
    "ResetFault": ("Reset", "UnHealthy"),
    "RestartRequestFault": ("RestartRequest", "UnHealthy"),
    "SeparateFault": ("Separate", "UnHealthy"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeReason:
    """Why a fault of a chip has another level than its code."""

    #: physical id
    chip: int
    #: hexadecimal; "" when a person has separated the chip
    code: str
    level: str
    #: `FaultFrequency`, `FaultDuration` or `FaultAutofill`
    type: str
    #: since when, in milliseconds since 1970
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchEvent:
    """One fault of a switch."""

    event_type: int
    #: as `[0x08520003,na,L2,na]`
    code: str
    peer: int
    peer_port: int
    chip: int
    port: int
    severity: int
    #: of its list, as `SeparateFault`
    level: str
    #: when it was noticed, in milliseconds since 1970
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInfo:
    """How the switches of a node are."""

    events: tuple[SwitchEvent, ...] = ()
    #: of the worst fault, as `SeparateFault`; "" without any
    level: str = ""


def parse_separated(
    text: str, product: Product, beside: Iterable[Product] = ()
) -> tuple[int, ...]:
    """The chips that a person or a program has separated, ascending.

    Blanks, empty elements and a name that stands twice are forgiven: people write it.

    Args:
        text: As it stands.
        product: Whose chips are wanted.
        beside: The node's other product lines, whose chips may be named as well.

    Raises:
        WireError: A name is not that of a chip of any of these products.
    """
    every = sorted((product, *beside), key=lambda row: row.resource)
    for index, name in enumerate(_names(text)):
        if not _is_of(name, every):
            path, expected = f"{SEPARATED_KEY}[{index}]", map(chips_of, every)
            raise WireError(path, expected=" or ".join(expected), found=name)
    return readable_separated(text, product)


def readable_separated(text: str, product: Product) -> tuple[int, ...]:
    """The chips of a product that a text names, whatever else stands in it, ascending.

    For a text that `parse_separated` does not take.
    """
    own = [name for name in _names(text) if _is_of(name, [product])]
    return parse_chip_names(own, product, path=SEPARATED_KEY)


def _names(text: str) -> list[str]:
    """The names in a list that people write, each once."""
    parts = dict.fromkeys(part.strip() for part in text.split(","))
    return [name for name in parts if name]


def _is_of(name: str, products: Iterable[Product]) -> bool:
    """Whether a name is that of a chip of any of these products."""
    for product in products:
        try:
            parse_chip(name, product, path="")
        except WireError:
            continue
        return True
    return False


def render_separated(chips: Iterable[int], product: Product) -> str:
    """The text under `ManuallySeparateNPU`: names by id; no chip gives ""."""
    return render_chips(chips, product)


def render_upgrades(reasons: Iterable[UpgradeReason], product: Product) -> str:
    """The text under `UpgradeFaultReason`."""
    return render_upgrades_of([(reasons, product)])


def render_upgrades_of(
    lines: Iterable[tuple[Iterable[UpgradeReason], Product]],
) -> str:
    """The text under `UpgradeFaultReason` of a node with several product lines."""
    listed: dict[str, list[dict[str, object]]] = {}
    for reasons, product in lines:
        for reason in reasons:
            listed.setdefault(chip_name(reason.chip, product), []).append(
                {
                    "upgrade_time": reason.time_ms,
                    "fault_code": reason.code,
                    "fault_level": reason.level,
                    "upgrade_type": reason.type,
                }
            )
    return go_json({name: listed[name] for name in sorted(listed)})


def parse_upgrades(
    text: str, product: Product, beside: Sequence[Product] = ()
) -> tuple[UpgradeReason, ...]:
    """What the text under `UpgradeFaultReason` says.

    What it says of chips of a line that the node does not have is left out: a program
    has written it, when the node had that line.

    Args:
        text: As it stands.
        product: Whose chips are wanted.
        beside: The node's other product lines, whose chips may be named as well.

    Raises:
        WireError: Not JSON, a field of the wrong type, a chip that is not one.
    """
    prefixes = tuple(row.chip_prefix for row in (product, *beside))
    root = as_object(parse_json(text, UPGRADES_KEY), UPGRADES_KEY)
    return tuple(
        _reason(item, product, name, f"{UPGRADES_KEY}[{name!r}][{index}]")
        for name, listed in root.items()
        if not _is_of(name, beside)
        and (name.startswith(prefixes) or not is_of_another_line(name, product))
        for index, item in enumerate(as_array(listed, f"{UPGRADES_KEY}[{name!r}]"))
    )


def _reason(item: object, product: Product, name: str, path: str) -> UpgradeReason:
    fields = as_object(item, path)
    return UpgradeReason(
        chip=parse_chip(name, product, path=UPGRADES_KEY),
        code=as_string(fields.get("fault_code"), f"{path}.fault_code"),
        level=as_string(fields.get("fault_level"), f"{path}.fault_level"),
        type=as_string(fields.get("upgrade_type"), f"{path}.upgrade_type"),
        time_ms=as_integer(fields.get("upgrade_time"), f"{path}.upgrade_time"),
    )


def render_switch(info: SwitchInfo, update_time: int) -> str:
    """The text under `SwitchInfoCfg`.

    Args:
        info: What to say.
        update_time: When it is said. Unit: Unix seconds.
    """
    level, status = _SWITCH_LEVELS[info.level]
    times = {
        f"{event.code}_{event.chip}_{event.port}": {
            "fault_time": event.time_ms,
            "fault_level": _SWITCH_LEVELS[event.level][0],
        }
        for event in info.events
    }
    return go_json(
        {
            "FaultCode": [_event(event) for event in info.events],
            "FaultLevel": level,
            "UpdateTime": update_time,
            "NodeStatus": status,
            "FaultTimeAndLevelMap": {key: times[key] for key in sorted(times)},
        }
    )


def _event(event: SwitchEvent) -> str:
    """One element of `FaultCode`: a text that is JSON itself."""
    return json.dumps(
        {
            "EventType": event.event_type,
            "AssembledFaultCode": event.code,
            "PeerPortDevice": event.peer,
            "PeerPortId": event.peer_port,
            "SwitchChipId": event.chip,
            "SwitchPortId": event.port,
            "Severity": event.severity,
            "Assertion": 1,
            "AlarmRaisedTime": event.time_ms,
        },
        separators=(",", ":"),
    )
