"""Give every fault of a reading its level, and add faults that no driver reports.

A driver reports codes. The lists give each code a level, and returning or staying can
raise it. Faults are added for chips with a broken network in the driver's own check,
and for chips that were separated by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.devices.reading import ChipFault, Level, Reading, worst
from agent.health import codes
from agent.health.escalation import Key, Upgrade
from agent.health.levels import Table


def keys_under_rules(reading: Reading) -> frozenset[Key]:
    """Return (chip, canonical code) of the faults to which rules apply.

    A fault whose reporter has given its level is exempt.
    """
    return frozenset(
        (fault.chip, codes.canonical(fault.code))
        for fault in reading.faults
        if fault.level is None
    )


def apply_levels(
    reading: Reading,
    table: Table,
    *,
    upgrades: Iterable[Upgrade] = (),
    separated: Iterable[int] = (),
) -> Reading:
    """Return a reading in which every fault has its level.

    Args:
        reading: As the driver gave it.
        table: Levels of codes.
        upgrades: Levels that faults got by returning or staying.
        separated: Chips separated by name, or by a rule that works like a name.
    """
    upgrades, separated = tuple(upgrades), frozenset(separated)
    if not (reading.faults or reading.unreachable or upgrades or separated):
        return reading  # the common case, at each reading
    faults = [
        *(_with_level(fault, table) for fault in reading.faults),
        *_network_faults(reading, table),
    ]
    for upgrade in upgrades:
        faults = _apply_upgrade(faults, upgrade, table)
    faults += _separation_faults(faults, separated)
    return replace(reading, faults=tuple(sorted(faults, key=lambda fault: fault.chip)))


def _with_level(fault: ChipFault, table: Table) -> ChipFault:
    return replace(
        fault,
        code=table.spelled(fault.code),
        level=table.level(fault),
        network=table.is_network(fault),
    )


def _network_faults(reading: Reading, table: Table) -> Iterator[ChipFault]:
    """Yield a fault for each chip with a broken network but no network code."""
    coded = {fault.chip for fault in reading.faults if table.is_network(fault)}
    for chip in reading.unreachable:
        if chip not in coded:
            yield ChipFault(chip=chip, code="", level=Level.PRE_SEPARATE, network=True)


def _apply_upgrade(
    faults: list[ChipFault], upgrade: Upgrade, table: Table
) -> list[ChipFault]:
    """Return faults with the level of an upgrade, which is added if its code has gone.

    A separation takes the chip itself out, also when its network has flapped.
    """
    plain = ChipFault(chip=upgrade.chip, code=table.spelled(upgrade.code))
    network = table.is_network(plain) and upgrade.level is not Level.MANUALLY_SEPARATE
    matching = [
        index
        for index, fault in enumerate(faults)
        if fault.chip == upgrade.chip
        and codes.canonical(fault.code) == upgrade.code
        and fault.network is network
    ]
    faults_after = list(faults)
    for index in matching:
        fault = faults_after[index]
        level = worst((upgrade.level, fault.seriousness))
        faults_after[index] = replace(fault, level=level)
    if not matching:
        faults_after.append(
            replace(plain, level=upgrade.level, network=network, since_ms=upgrade.at_ms)
        )
    return faults_after


def _separation_faults(
    faults: Iterable[ChipFault], separated: frozenset[int]
) -> list[ChipFault]:
    """Return a fault for each separated chip that has none of that level."""
    explained = {
        fault.chip for fault in faults if fault.level is Level.MANUALLY_SEPARATE
    }
    return [
        ChipFault(chip=chip, code="", level=Level.MANUALLY_SEPARATE)
        for chip in sorted(separated - explained)
    ]
