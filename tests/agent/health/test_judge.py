"""The verdict on one reading."""

from dataclasses import replace
from typing import Any

from agent.devices.reading import ChipFault, Level
from agent.devices.simulated import file
from agent.health.code_history import Presence
from agent.health.judge import apply_levels, presences_under_rules
from agent.health.levels import BUILT_IN
from agent.health.upgrades import Kind, Upgrade

GOOD = file.parse("product: atlas-800-training\n")


def judged(*faults: ChipFault, **more: Any) -> tuple[ChipFault, ...]:
    """The faults of a reading after the verdict."""
    reading = replace(GOOD, faults=faults)
    return apply_levels(reading, BUILT_IN, **more).faults


def upgrade(code: str, level: Level) -> Upgrade:
    return Upgrade(chip=3, code=code, level=level, kind=Kind.DURATION, at_ms=7)


def test_a_good_reading_is_the_same_one() -> None:
    assert apply_levels(GOOD, BUILT_IN) is GOOD


def test_each_fault_gets_its_level_its_kind_and_its_spelling() -> None:
    found = judged(
        ChipFault(chip=1, code="20001002", severity=3, since_ms=5),
        ChipFault(chip=2, code="81078603"),
    )

    assert found == (
        ChipFault(
            chip=1, code="020001002", severity=3, level=Level.SEPARATE, since_ms=5
        ),
        ChipFault(chip=2, code="81078603", level=Level.NOT_HANDLED, network=True),
    )


def test_a_serious_unknown_code_is_not_masked_by_a_known_one() -> None:
    found = judged(
        ChipFault(chip=1, code="80E21007"),
        ChipFault(chip=1, code="8FFFFFFF", severity=3),
    )

    assert [fault.level for fault in found] == [
        Level.NOT_HANDLED,
        Level.SEPARATE,
    ]


def test_an_upgrade_raises_its_fault() -> None:
    found = judged(
        ChipFault(chip=3, code="81078603", since_ms=5),
        upgrades=[upgrade("81078603", Level.PRE_SEPARATE)],
    )

    assert found == (
        ChipFault(
            chip=3,
            code="81078603",
            level=Level.PRE_SEPARATE,
            network=True,
            since_ms=5,
        ),
    )


def test_an_upgrade_outlasts_its_code() -> None:
    found = judged(upgrades=[upgrade("20001002", Level.SEPARATE)])

    assert found == (
        ChipFault(chip=3, code="020001002", level=Level.SEPARATE, since_ms=7),
    )


def test_an_upgrade_never_makes_a_fault_harmless() -> None:
    found = judged(
        ChipFault(chip=3, code="80E3A201"),
        upgrades=[upgrade("80E3A201", Level.SUB_HEALTH)],
    )

    assert [fault.level for fault in found] == [Level.SEPARATE]


def test_a_network_that_flaps_too_often_takes_out_the_chip() -> None:
    found = judged(
        ChipFault(chip=3, code="81078603"),
        upgrades=[upgrade("81078603", Level.MANUALLY_SEPARATE)],
        separated=[3],
    )

    assert found == (
        ChipFault(chip=3, code="81078603", level=Level.NOT_HANDLED, network=True),
        ChipFault(chip=3, code="81078603", level=Level.MANUALLY_SEPARATE, since_ms=7),
    )


def test_a_network_fault_is_not_the_separation_of_its_chip() -> None:
    link = ChipFault(
        chip=5, code="81078603", level=Level.MANUALLY_SEPARATE, network=True
    )

    assert judged(link, separated=[5]) == (
        link,
        ChipFault(chip=5, code="", level=Level.MANUALLY_SEPARATE),
    )


def test_a_chip_separated_by_hand_has_a_fault_without_a_code() -> None:
    assert judged(separated=[5]) == (
        ChipFault(chip=5, code="", level=Level.MANUALLY_SEPARATE),
    )


def test_rules_are_applied_to_codes_whose_level_nobody_gave() -> None:
    faults = (
        ChipFault(chip=1, code="020001002", count=2, since_ms=7),
        ChipFault(chip=2, code="80E01801", level=Level.SEPARATE),
    )

    assert presences_under_rules(replace(GOOD, faults=faults)) == {
        (1, "20001002"): Presence(count=2, since_ms=7)
    }
