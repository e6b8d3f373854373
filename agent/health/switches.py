"""Fault level of a SuperPoD node, from the faults of the node's switches.

The code of a switch fault is a text of four parts, like `[0x00f1fef5,155913,cpu,na]`:

    alarm id   names the event; 0x08520003 means that a port is down
    fault id   a number, or `na` if the driver gives none
    peer       what the faulty port leads to: `cpu`, `npu`, `L2` (another switch), or
               `na` for a fault that is not of one port
    last part  `na` in all built-in codes

Source: MindCluster's device plugin, `build/SwitchFaultCode.json`,
`pkg/common/device.go` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType

from agent.devices.reading import SwitchFault


class SwitchLevel(Enum):
    """Level of a switch fault; the members are ordered from least to worst.

    `SwitchFaultCode.json` has a list of fault codes for each level. The list's key is
    the level's value with `Codes` appended, for example `SeparateFaultCodes`.
    """

    NOT_HANDLED = "NotHandleFault"
    SUB_HEALTH = "SubHealthFault"
    RESET = "ResetFault"
    RESTART_REQUEST = "RestartRequestFault"
    SEPARATE = "SeparateFault"


_RANK = {level_of: rank for rank, level_of in enumerate(SwitchLevel)}
#: Level of a code in no list, as in the reference.
_UNLISTED = SwitchLevel.NOT_HANDLED
#: Peer of a port that leads to another switch.
_TO_SWITCH = 2
#: Number of ports of a switch chip to the second layer. With all down it is cut off.
_PORTS_UP = 16
#: Event: the port is down.
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


def make_table(
    lists: Mapping[SwitchLevel, Iterable[str]],
) -> Mapping[str, SwitchLevel]:
    """Return {switch fault code in lower case: level} from lists of codes.

    A code in the lists of two levels has the worse level.

    Args:
        lists: {level: its codes}.
    """
    level_by_code: dict[str, SwitchLevel] = {}
    for level in sorted(lists, key=_RANK.__getitem__):
        level_by_code |= {code.lower(): level for code in lists[level]}
    return MappingProxyType(level_by_code)


BUILT_IN = make_table({level_of: text.split() for level_of, text in _LISTED.items()})


def level_of(fault: SwitchFault, levels: Mapping[str, SwitchLevel]) -> SwitchLevel:
    """Return the level of a switch fault's code; NOT_HANDLED if `levels` lacks it.

    Args:
        fault: Only its code counts.
        levels: {switch fault code in lower case: level}.
    """
    return levels.get(fault.code.lower(), _UNLISTED)


def worst_level(
    faults: Iterable[SwitchFault], levels: Mapping[str, SwitchLevel]
) -> SwitchLevel | None:
    """Return the worst level among a node's switch faults; None if there are none.

    The level is SEPARATE if at least 16 ports from one switch chip to other switches
    are down. The switch chip is then cut off, although the built-in level of each such
    fault alone is NOT_HANDLED.

    Args:
        faults: Faults of all switches of the node.
        levels: {switch fault code in lower case: level}.
    """
    faults = tuple(faults)
    found_levels = {level_of(fault, levels) for fault in faults}
    down_ports: dict[int, set[int]] = {}
    for fault in faults:
        if fault.peer == _TO_SWITCH and fault.code.lower().startswith(f"[{_DOWN},"):
            down_ports.setdefault(fault.chip, set()).add(fault.port)
    if any(len(ports) >= _PORTS_UP for ports in down_ports.values()):
        found_levels.add(SwitchLevel.SEPARATE)
    return max(found_levels, key=_RANK.__getitem__, default=None)
