"""Give each fault of a reading its level, and add faults that the reading lacks.

The driver reports fault codes. `agent.health.levels` finds the level of a code. An
upgrade is a higher level that a code gets because it returns or stays. A fault is added
in three cases:

    a fault code has gone from a chip, but its upgrade has not ended
    a network fault has an upgrade to ManuallySeparateNPU: as this level separates the
    chip itself, the added fault is one of the chip
    a chip is separated (people or a rule have taken it out of service), but no fault
    of the chip has the level ManuallySeparateNPU
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agent.devices.reading import ChipFault, Level, Reading, worst
from agent.health import codes
from agent.health.code_history import Presence
from agent.health.escalation import Key
from agent.health.levels import Table
from agent.health.upgrades import Upgrade


def presences_under_rules(reading: Reading) -> Mapping[Key, Presence]:
    """Return {(chip, fault code): presence} of faults without a level of the driver.

    Frequency and duration rules may raise only the levels of these faults. The codes
    are in upper case and have no leading zeros.

    Args:
        reading: Reading of the driver, before `apply_levels`.
    """
    return {
        (fault.chip, codes.canonical(fault.code)): Presence(
            count=fault.count, since_ms=fault.since_ms
        )
        for fault in reading.faults
        if fault.level is None
    }


def apply_levels(
    reading: Reading,
    table: Table,
    *,
    upgrades: Iterable[Upgrade] = (),
    separated: Iterable[int] = (),
) -> Reading:
    """Return the reading with a level for every fault, and with added faults.

    Args:
        reading: Reading of the driver, in which faults may have no level.
        upgrades: Higher levels of codes that returned or stayed.
        separated: Chips that a person or a frequency rule has separated by name.
    """
    upgrades, separated = tuple(upgrades), frozenset(separated)
    if not (reading.faults or upgrades or separated):
        return reading  # the common case, at each reading
    faults = [_with_level(fault, table) for fault in reading.faults]
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


def _apply_upgrade(
    faults: list[ChipFault], upgrade: Upgrade, table: Table
) -> list[ChipFault]:
    """Return the faults after `upgrade` has raised the level of its code on its chip.

    A fault with a worse level than the upgrade's keeps its level. A network fault never
    gets ManuallySeparateNPU from an upgrade, because this level separates the chip
    itself. If the upgrade applies to no fault of the chip, a fault is added.
    """
    plain = ChipFault(chip=upgrade.chip, code=table.spelled(upgrade.code))
    network = table.is_network(plain) and upgrade.level is not Level.MANUALLY_SEPARATE

    def is_raised(fault: ChipFault) -> bool:
        is_same = codes.canonical(fault.code) == upgrade.code
        return is_same and (fault.chip, fault.network) == (upgrade.chip, network)

    if not any(map(is_raised, faults)):
        added = replace(
            plain, level=upgrade.level, network=network, since_ms=upgrade.at_ms
        )
        return [*faults, added]
    return [
        replace(fault, level=worst((upgrade.level, fault.seriousness)))
        if is_raised(fault)
        else fault
        for fault in faults
    ]


def _separation_faults(
    faults: Iterable[ChipFault], separated: frozenset[int]
) -> list[ChipFault]:
    """Return a ManuallySeparateNPU fault for each separated chip that has none.

    A network fault does not count: it leaves its chip in service at any level.
    """
    explained = {
        fault.chip
        for fault in faults
        if fault.level is Level.MANUALLY_SEPARATE and not fault.network
    }
    return [
        ChipFault(chip=chip, code="", level=Level.MANUALLY_SEPARATE)
        for chip in sorted(separated - explained)
    ]
