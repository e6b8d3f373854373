"""The verdict on one reading: every fault with its level, and those that only we see.

A driver reports codes. What comes of this is a reading whose faults all have levels:
by the lists, or what they have become by returning or staying; and beside them the
chips whose network the driver's own check finds broken, and those that were separated
by name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.devices.reading import ChipFault, Level, Reading, worst
from agent.health import codes
from agent.health.escalation import Key, Upgrade
from agent.health.table import Table


def followed(reading: Reading) -> frozenset[Key]:
    """Return chip and canonical code of the faults that rules are applied to.

    A fault whose level its reporter has given is what it is.
    """
    return frozenset(
        (fault.chip, codes.canonical(fault.code))
        for fault in reading.faults
        if fault.level is None
    )


def judged(
    reading: Reading,
    table: Table,
    *,
    upgrades: Iterable[Upgrade] = (),
    separated: Iterable[int] = (),
) -> Reading:
    """Return a reading whose faults all have their level.

    Args:
        reading: What the driver says.
        table: Which level a code has.
        upgrades: Levels that faults have got by returning or staying.
        separated: Chips that were taken out of service by name, or by a rule that
            works as if they were.
    """
    upgrades, separated = tuple(upgrades), frozenset(separated)
    if not (reading.faults or reading.unreachable or upgrades or separated):
        return reading  # the rule, and it is asked at each look
    found = [
        *(_leveled(fault, table) for fault in reading.faults),
        *_unreachable(reading, table),
    ]
    for upgrade in upgrades:
        found = _upgraded(found, upgrade, table)
    found += _without_code(found, separated)
    return replace(reading, faults=tuple(sorted(found, key=lambda fault: fault.chip)))


def _leveled(fault: ChipFault, table: Table) -> ChipFault:
    return replace(
        fault,
        code=table.spelled(fault.code),
        level=table.level(fault),
        network=table.is_network(fault),
    )


def _unreachable(reading: Reading, table: Table) -> Iterator[ChipFault]:
    """Yield a fault for each chip whose network is broken without a code of its own."""
    coded = {fault.chip for fault in reading.faults if table.is_network(fault)}
    for chip in reading.unreachable:
        if chip not in coded:
            yield ChipFault(chip=chip, code="", level=Level.PRE_SEPARATE, network=True)


def _upgraded(
    faults: list[ChipFault], upgrade: Upgrade, table: Table
) -> list[ChipFault]:
    """Give a fault the level of an upgrade; add it where its code has gone.

    Separation takes out the chip, also when it is the network that has flapped.
    """
    bare = ChipFault(chip=upgrade.chip, code=table.spelled(upgrade.code))
    network = table.is_network(bare) and upgrade.level is not Level.MANUALLY_SEPARATE
    mine = [
        index
        for index, fault in enumerate(faults)
        if fault.chip == upgrade.chip
        and codes.canonical(fault.code) == upgrade.code
        and fault.network is network
    ]
    after = list(faults)
    for index in mine:
        fault = after[index]
        level = worst((upgrade.level, fault.seriousness))
        after[index] = replace(fault, level=level)
    if not mine:
        after.append(
            replace(bare, level=upgrade.level, network=network, since_ms=upgrade.at_ms)
        )
    return after


def _without_code(
    faults: Iterable[ChipFault], separated: frozenset[int]
) -> list[ChipFault]:
    """Return a fault for each chip that was separated without one."""
    explained = {
        fault.chip for fault in faults if fault.level is Level.MANUALLY_SEPARATE
    }
    return [
        ChipFault(chip=chip, code="", level=Level.MANUALLY_SEPARATE)
        for chip in sorted(separated - explained)
    ]
