"""What faults of a SuperPoD node's switches mean for the node.

A switch has a fault code of its own: `[0x00f1fef5,155913,cpu,na]` names event, alarm,
what the port leads to, and a port. The level of a node is that of its worst fault.

Source: MindCluster's device plugin, `build/SwitchFaultCode.json`,
`pkg/common/device.go` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType

from agent.devices.reading import SwitchFault


class SwitchLevel(Enum):
    """How serious a fault of a switch is, from least to worst: the members' order.

    The values are the wire names; with `Codes` behind, those of the lists.
    """

    NOT_HANDLED = "NotHandleFault"
    SUB_HEALTH = "SubHealthFault"
    RESET = "ResetFault"
    RESTART_REQUEST = "RestartRequestFault"
    SEPARATE = "SeparateFault"


_RANK = {level: rank for rank, level in enumerate(SwitchLevel)}
#: Of a code in no list, as in the reference.
_UNSAID = SwitchLevel.NOT_HANDLED
#: What a port leads to: another switch.
_TO_SWITCH = 2
#: Ports of one switch chip towards the second layer. All of them down cut it off.
_PORTS_UP = 16
_DOWN = "0x08520003"

_LISTED: Mapping[SwitchLevel, str] = {
    SwitchLevel.NOT_HANDLED: """
        [0x00f1fef5,155913,cpu,na] [0x00f1fef5,155913,L2,na] [0x08520003,na,L2,na]
        [0x00f10509,132333,L2,na] [0x00f1fef5,155913,na,na] [0x00f1fef5,155913,npu,na]
        [0x00f1fef5,155914,L2,na] [0x00f10509,132332,L2,na] [0x00f1fef5,155915,cpu,na]
        [0x00f1fef5,155915,npu,na] [0x00f1fef5,155915,L2,na] [0x00f103b6,155909,na,na]
    """,
    SwitchLevel.SUB_HEALTH: """
        [0x00f103b6,155908,na,na] [0x00f10509,132332,cpu,na] [0x00f1ff06,155910,na,na]
        [0x00f10509,132332,npu,na] [0x00f10509,132333,cpu,na] [0x00f10509,132333,npu,na]
        [0x00f1ff06,132134,na,na] [0x00f1ff06,155911,na,na]
    """,
    SwitchLevel.RESET: "",
    SwitchLevel.RESTART_REQUEST: "[0x00f1fef5,155914,npu,na]",
    SwitchLevel.SEPARATE: """
        [0x00f103b0,155907,na,na] [0x00f103b0,155649,na,na] [0x00f103b0,155904,na,na]
        [0x00f1fef5,155912,cpu,na] [0x00f1fef5,155912,npu,na] [0x00f1fef5,155914,cpu,na]
        [0x08520003,na,cpu,na] [0x08520003,na,npu,na] [0x00f1fef5,155912,L2,na]
    """,
}


def table(
    lists: Mapping[SwitchLevel, Iterable[str]],
) -> Mapping[str, SwitchLevel]:
    """Return the level of each code; one in two lists has the worse."""
    found: dict[str, SwitchLevel] = {}
    for level in sorted(lists, key=_RANK.__getitem__):
        found |= {code.lower(): level for code in lists[level]}
    return MappingProxyType(found)


BUILT_IN = table({level: text.split() for level, text in _LISTED.items()})


def level(fault: SwitchFault, levels: Mapping[str, SwitchLevel]) -> SwitchLevel:
    """Return the level of one fault by itself."""
    return levels.get(fault.code.lower(), _UNSAID)


def worst(
    faults: Iterable[SwitchFault], levels: Mapping[str, SwitchLevel]
) -> SwitchLevel | None:
    """Return the level of a node with these faults; None without any.

    A switch chip all of whose ports to the second layer are down is cut off, although
    each of them by itself is nothing.
    """
    faults = tuple(faults)
    found = {level(fault, levels) for fault in faults}
    down: dict[int, set[int]] = {}
    for fault in faults:
        if fault.peer == _TO_SWITCH and fault.code.lower().startswith(f"[{_DOWN},"):
            down.setdefault(fault.chip, set()).add(fault.port)
    if any(len(ports) >= _PORTS_UP for ports in down.values()):
        found.add(SwitchLevel.SEPARATE)
    return max(found, key=_RANK.__getitem__, default=None)
