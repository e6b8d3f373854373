"""Which level a fault code has, built in and by lists."""

import pytest

from agent.devices.reading import ChipFault, Level
from agent.health import codes
from agent.health.levels import BUILT_IN, make_table


def fault(
    code: str, severity: int | None = None, *, network: bool = False
) -> ChipFault:
    return ChipFault(chip=0, code=code, severity=severity, network=network)


def test_the_built_in_lists_have_as_many_codes_as_their_source() -> None:
    assert {
        level: len(set(found)) for level, found in codes.codes_by_level().items()
    } == {
        Level.SEPARATE: 215,
        Level.PRE_SEPARATE: 200,
        Level.RESTART: 162,
        Level.FREE_RESTART: 23,
        Level.RESTART_BUSINESS: 25,  # of 26, one of which stands there twice
        Level.RESTART_REQUEST: 33,
        Level.SUB_HEALTH: 13,
        Level.NOT_HANDLED: 132,
    }


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("80E3A201", Level.SEPARATE),
        ("8F180219", Level.SEPARATE),  # the end of a range
        ("8F18025A", Level.PRE_SEPARATE),  # between two ranges
        ("8118043C", Level.PRE_SEPARATE),
        ("40F84E00", Level.RESTART),
        ("8C0E4E00", Level.FREE_RESTART),
        ("80E01801", Level.RESTART_BUSINESS),
        ("80C98008", Level.RESTART_REQUEST),
        ("81A3880C", Level.SUB_HEALTH),
        ("80E21007", Level.NOT_HANDLED),
        ("81078603", Level.NOT_HANDLED),
        ("A2301001", Level.SEPARATE),  # in two lists
        ("80e3a201", Level.SEPARATE),
        ("20001002", Level.SEPARATE),  # listed as 020001002
        ("020001002", Level.SEPARATE),
    ],
)
def test_a_listed_code_has_the_level_of_its_list(code: str, level: Level) -> None:
    assert BUILT_IN.level(fault(code, severity=1)) is level


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        (0, Level.NOT_HANDLED),
        (1, Level.NOT_HANDLED),
        (2, Level.SEPARATE),
        (3, Level.SEPARATE),
        (None, Level.SEPARATE),
    ],
)
def test_a_code_in_no_list_has_the_level_of_its_severity(
    severity: int | None, level: Level
) -> None:
    assert BUILT_IN.level(fault("8FFFFFFF", severity)) is level


def test_a_fault_that_says_its_level_keeps_it() -> None:
    told = ChipFault(chip=0, code="80E3A201", level=Level.SUB_HEALTH)

    assert BUILT_IN.level(told) is Level.SUB_HEALTH


def test_a_network_fault_in_no_list_is_pre_separated() -> None:
    unknown = fault("8FFFFFFF", severity=0, network=True)

    assert BUILT_IN.level(unknown) is Level.PRE_SEPARATE


@pytest.mark.parametrize("code", sorted(codes.NETWORK))
def test_codes_of_the_network_are_known_without_being_told(code: str) -> None:
    assert BUILT_IN.is_network(fault(code))


def test_a_list_for_networks_counts_before_the_others() -> None:
    both = make_table(
        {Level.SEPARATE: ("81078603",)}, {Level.NOT_HANDLED: ("81078603",)}
    )

    assert both.level(fault("81078603")) is Level.NOT_HANDLED


@pytest.mark.parametrize(
    "level",
    [
        Level.RESTART_REQUEST,
        Level.RESTART_BUSINESS,
        Level.FREE_RESTART,
        Level.RESTART,
    ],
)
def test_a_network_is_never_restarted(level: Level) -> None:
    assert (
        make_table({level: ("81078603",)}).level(fault("81078603")) is Level.NOT_HANDLED
    )


def test_a_code_is_published_as_its_list_spells_it() -> None:
    assert (BUILT_IN.spelled("20001002"), BUILT_IN.spelled("80E3A201")) == (
        "020001002",
        "80E3A201",
    )
