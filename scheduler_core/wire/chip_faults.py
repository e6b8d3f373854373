"""Faults of chips, as a node's report has them in its lists of chips and of faults.

The lists of chips say which chips are in service, the list of faults says why.
The list of faults may be missing, may not be readable, or may contradict the others:
other device plugins write the report too, and people edit it. Then the lists of chips
count, and the level of the fault is not known.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from scheduler_core.wire.deviceinfo import DeviceInfo, Fault
from scheduler_core.wire.faults import NO_FAULT, is_possible, moves_after_s, rank_level

#: what is shown to people; all else is not a code, or not a level
_CODE = re.compile("[0-9A-Fa-f]{1,16}")
_LEVEL = re.compile("[A-Za-z0-9]{1,40}")
#: times from here on, the year 10000, are no dates; in milliseconds since 1970
_NO_DATE_MS = 253_402_300_800_000


class Effect(Enum):
    """Effect of a fault on its chip, worst first; the values are shown to people."""

    OUT_OF_SERVICE = "out of service"
    #: out of service until the fault has been gone for a while
    RECOVERING = "recovering"
    #: in service, but of no use for jobs of several pods
    NETWORK = "network unhealthy"
    NONE = "in service"


_EFFECTS = tuple(Effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipFault:
    """All faults of one chip, or all faults of its network."""

    #: physical id
    chip: int
    #: whether the faults are of the chip's network
    network: bool = False
    effect: Effect
    #: worst level; None if it is unknown
    level: str | None
    #: hexadecimal fault codes, each once, in the order of the report
    codes: tuple[str, ...] = ()
    #: since when a fault has the level, or since when a fault is there if the level is
    #: unknown; None if the report does not say. In milliseconds since 1970
    since_ms: int | None = None


def chip_faults(info: DeviceInfo) -> tuple[ChipFault, ...]:
    """Return the faults of all chips in a report, by chip, those of its network last.

    Cost:
        Next to none for a report without faults.
    """
    is_listed = info.unhealthy or info.recovering or info.network_unhealthy
    if not (is_listed or info.faults):
        return ()
    by_part = {
        part: tuple(faults)
        for part, faults in groupby(sorted(info.faults, key=_part), key=_part)
    }
    parts = {
        *by_part,
        *((chip, False) for chip in (*info.unhealthy, *info.recovering)),
        *((chip, True) for chip in info.network_unhealthy),
    }
    found = (
        _chip_fault(info, chip, by_part.get((chip, network), ()), network=network)
        for chip, network in sorted(parts)
    )
    return tuple(fault for fault in found if fault is not None)


def _part(fault: Fault) -> tuple[int, bool]:
    return fault.chip, fault.network


def _chip_fault(
    info: DeviceInfo, chip: int, faults: tuple[Fault, ...], *, network: bool
) -> ChipFault | None:
    """Return the faults of a chip or of its network as one; None if there is none."""
    effect = _effect(info, chip, network=network)
    levels = (fault.level for fault in faults)
    worst_level = min(levels, key=rank_level, default=NO_FAULT)
    listed = info.network_unhealthy if network else (*info.unhealthy, *info.recovering)
    if worst_level == NO_FAULT and chip not in listed:
        return None
    is_known = _is_explained(effect, worst_level, network=network)
    times = [
        fault.time_ms
        for fault in faults
        if 0 < fault.time_ms < _NO_DATE_MS
        and (fault.level == worst_level or not is_known)
    ]
    codes = (fault.code for fault in faults if _CODE.fullmatch(fault.code))
    return ChipFault(
        chip=chip,
        network=network,
        effect=effect,
        level=worst_level if is_known else None,
        codes=tuple(dict.fromkeys(codes)),
        since_ms=min(times, default=None),
    )


def _effect(info: DeviceInfo, chip: int, *, network: bool) -> Effect:
    if chip in info.unhealthy:
        return Effect.OUT_OF_SERVICE
    if chip in info.recovering:
        return Effect.RECOVERING
    if network and chip in info.network_unhealthy:
        return Effect.NETWORK
    return Effect.NONE


def _is_explained(effect: Effect, level: str, *, network: bool) -> bool:
    """Return whether a level fits the lists of chips.

    Of a chip out of service, no list says how its network is. A chip that recovers may
    have a fault of any level.
    """
    if level == NO_FAULT or not _LEVEL.fullmatch(level):
        return False
    if effect is Effect.RECOVERING or (network and effect is Effect.OUT_OF_SERVICE):
        return True
    return is_possible(level, network=network, unhealthy=effect is not Effect.NONE)


def of_chips(faults: Iterable[ChipFault], mask: int) -> tuple[ChipFault, ...]:
    """Return those of `faults` whose chip is in `mask`, the worst first.

    The effect decides, then the level: an unknown one is worst. A fault of the chip is
    worse than one of its network. Equal faults keep their order.
    """
    own = (fault for fault in faults if mask >> fault.chip & 1)
    return tuple(sorted(own, key=_badness))


def settle_s(fault: ChipFault) -> float | None:
    """Return how long a fault of a pod's chip lasts before the pod moves; None: never.

    A fault of the network moves no pod, and neither does a fault that is over. A fault
    of unknown level moves the pod if its chip is out of service.
    """
    if fault.network or fault.effect is Effect.RECOVERING:
        return None
    is_known = fault.level is not None and rank_level(fault.level) >= 0
    if not is_known and fault.effect is Effect.NONE:
        return None
    return 0.0 if fault.level is None else moves_after_s(fault.level)


def _badness(fault: ChipFault) -> tuple[int, bool, int]:
    level_rank = -1 if fault.level is None else rank_level(fault.level)
    return _EFFECTS.index(fault.effect), fault.network, level_rank
