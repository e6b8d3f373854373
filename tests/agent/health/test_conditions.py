"""Each condition of a chip, each finding, and each way back."""

from dataclasses import replace
from itertools import product

import pytest

from agent.devices.reading import ChipFault, Level, Reading, Unread
from agent.devices.simulated import file
from agent.health import conditions
from agent.health.conditions import (
    TRANSITIONS,
    ChipHealth,
    Condition,
    Finding,
    Health,
    ReadingTaken,
    Transition,
)

GOOD = file.parse("product: atlas-800-training\n")

HEALTHY = Condition.HEALTHY
UNHEALTHY = Condition.UNHEALTHY
NETWORK = Condition.NETWORK_UNHEALTHY
RECOVERING = Condition.RECOVERING


def fault(level: Level, *, network: bool = False, code: str = "80E01801") -> ChipFault:
    return ChipFault(chip=3, code=code, level=level, network=network)


def with_faults(*faults: ChipFault) -> Reading:
    return replace(GOOD, faults=faults)


BAD = with_faults(fault(Level.SEPARATE))
BAD_NETWORK = with_faults(fault(Level.PRE_SEPARATE, network=True))
GONE = replace(GOOD, chips=(0, 1, 2, 4, 5, 6, 7))


def conditions_of_3(*looks: tuple[float, Reading]) -> list[Condition]:
    """The condition of chip 3 after each look, hold-off one second."""
    state, seen = Health(), []
    for now, reading in looks:
        state, _ = conditions.step(
            state, ReadingTaken(reading=reading, recover_s=1.0), now
        )
        seen.append(state.chips[3].condition)
    return seen


def test_a_fault_that_nobody_has_given_a_level_takes_a_chip_out_of_service() -> None:
    bad = with_faults(ChipFault(chip=3, code="80E01801", severity=0))

    assert conditions_of_3((0.0, bad)) == [UNHEALTHY]


ONE_FAULT = [
    with_faults(fault(level, network=network))
    for level, network in product(Level, (False, True))
]


@pytest.mark.parametrize("was", Condition)
@pytest.mark.parametrize("is_used", [False, True])
def test_nothing_comes_of_a_settled_look_later_whatever_pods_do(
    was: Condition, *, is_used: bool
) -> None:
    settled = 0
    for reading in (GOOD, GONE, *ONE_FAULT):
        before = Health(chips={3: ChipHealth(condition=was, found_since=0.0)})
        used = frozenset({3}) if is_used else frozenset()
        look = ReadingTaken(reading=reading, in_use=used, recover_s=1.0)
        state, _ = conditions.step(before, look, 0.5)
        if not conditions.is_stable(state, reading):
            continue
        settled += 1
        for now, used in product((0.6, 9.0), (frozenset(), frozenset({3}))):
            later = replace(look, in_use=used)
            assert conditions.step(state, later, now)[1] == (), (reading.faults, now)

    assert settled > 0


def test_a_good_machine_is_settled_and_a_chip_that_recovers_is_not() -> None:
    readings = (GOOD, BAD, GOOD, GOOD)
    state, found = Health(), []
    for now, reading in enumerate(readings):
        look = ReadingTaken(reading=reading, recover_s=0.5)
        state, _ = conditions.step(state, look, float(now))
        found.append(conditions.is_stable(state, reading))

    assert found == [True, True, False, True]


def test_every_pair_of_condition_and_finding_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(product(Condition, Finding))


@pytest.mark.parametrize(
    ("condition", "finding", "after"),
    [
        (HEALTHY, Finding.FAULTY, UNHEALTHY),
        (HEALTHY, Finding.NETWORK_FAULTY, NETWORK),
        (HEALTHY, Finding.NETWORK_FAULTY_STEADY, NETWORK),
        (HEALTHY, Finding.CLEAR, HEALTHY),
        (HEALTHY, Finding.CLEAR_STEADY, HEALTHY),
        (UNHEALTHY, Finding.FAULTY, UNHEALTHY),
        (UNHEALTHY, Finding.NETWORK_FAULTY, RECOVERING),
        (UNHEALTHY, Finding.NETWORK_FAULTY_STEADY, RECOVERING),
        (UNHEALTHY, Finding.CLEAR, RECOVERING),
        (UNHEALTHY, Finding.CLEAR_STEADY, RECOVERING),
        (NETWORK, Finding.FAULTY, UNHEALTHY),
        (NETWORK, Finding.NETWORK_FAULTY, NETWORK),
        (NETWORK, Finding.NETWORK_FAULTY_STEADY, NETWORK),
        (NETWORK, Finding.CLEAR, NETWORK),
        (NETWORK, Finding.CLEAR_STEADY, HEALTHY),
        (RECOVERING, Finding.FAULTY, UNHEALTHY),
        (RECOVERING, Finding.NETWORK_FAULTY, RECOVERING),
        (RECOVERING, Finding.NETWORK_FAULTY_STEADY, NETWORK),
        (RECOVERING, Finding.CLEAR, RECOVERING),
        (RECOVERING, Finding.CLEAR_STEADY, HEALTHY),
    ],
)
def test_each_pair_leads_where_it_should(
    condition: Condition, finding: Finding, after: Condition
) -> None:
    assert TRANSITIONS[condition, finding] is after


def test_each_condition_has_a_way_back_to_healthy() -> None:
    back = {HEALTHY}
    for _ in Condition:
        back |= {before for (before, _), after in TRANSITIONS.items() if after in back}

    assert back == set(Condition)


@pytest.mark.parametrize(
    ("level", "in_use", "condition"),
    [
        (Level.NORMAL, False, HEALTHY),
        (Level.NOT_HANDLED, False, HEALTHY),
        (Level.SUB_HEALTH, False, HEALTHY),
        (Level.RESTART_REQUEST, True, UNHEALTHY),
        (Level.RESTART_BUSINESS, True, UNHEALTHY),
        (Level.FREE_RESTART, True, UNHEALTHY),
        (Level.RESTART, True, UNHEALTHY),
        (Level.PRE_SEPARATE, True, HEALTHY),
        (Level.PRE_SEPARATE, False, UNHEALTHY),
        (Level.SEPARATE, True, UNHEALTHY),
        (Level.MANUALLY_SEPARATE, True, UNHEALTHY),
    ],
)
@pytest.mark.seed("000-01")
def test_the_level_of_a_fault_decides(
    level: Level, *, in_use: bool, condition: Condition
) -> None:
    look = ReadingTaken(
        reading=with_faults(fault(level)),
        in_use=frozenset({3} if in_use else ()),
    )

    state, _ = conditions.step(Health(), look, 0.0)

    assert state.chips[3].condition is condition


@pytest.mark.parametrize("level", Level)
def test_a_network_fault_never_takes_the_chip_itself_out_of_service(
    level: Level,
) -> None:
    look = ReadingTaken(reading=with_faults(fault(level, network=True)))

    state, _ = conditions.step(Health(), look, 0.0)

    severe = {
        Level.SUB_HEALTH,
        Level.PRE_SEPARATE,
        Level.SEPARATE,
        Level.MANUALLY_SEPARATE,
    }
    assert state.chips[3].condition is (NETWORK if level in severe else HEALTHY)
    assert state.in_service == (0, 1, 2, 3, 4, 5, 6, 7)


def test_the_worst_of_several_faults_decides() -> None:
    reading = with_faults(
        fault(Level.NOT_HANDLED, code="80CB8006"), fault(Level.SEPARATE)
    )

    state, transitions = conditions.step(Health(), ReadingTaken(reading=reading), 0.0)

    assert transitions == (
        Transition(
            chip=3,
            before=HEALTHY,
            after=UNHEALTHY,
            reason="SeparateNPU 80CB8006,80E01801",
        ),
    )
    assert state.in_service == (0, 1, 2, 4, 5, 6, 7)


@pytest.mark.seed("000-01")
def test_a_chip_recovers_after_the_hold_off_and_not_before() -> None:
    assert conditions_of_3(
        (0.0, GOOD), (1.0, BAD), (2.0, GOOD), (2.9, GOOD), (3.0, GOOD)
    ) == [HEALTHY, UNHEALTHY, RECOVERING, RECOVERING, HEALTHY]


def test_a_fault_that_flaps_starts_the_hold_off_anew() -> None:
    assert conditions_of_3(
        (1.0, BAD), (2.0, GOOD), (2.9, BAD), (3.0, GOOD), (3.9, GOOD), (4.0, GOOD)
    ) == [UNHEALTHY, RECOVERING, UNHEALTHY, RECOVERING, RECOVERING, HEALTHY]


def test_a_network_comes_back_after_the_hold_off_without_leaving_service() -> None:
    assert conditions_of_3(
        (1.0, BAD_NETWORK), (2.0, GOOD), (2.9, GOOD), (3.0, GOOD)
    ) == [NETWORK, NETWORK, NETWORK, HEALTHY]


def test_a_chip_whose_own_fault_goes_before_its_networks_recovers_to_that() -> None:
    both = with_faults(
        fault(Level.SEPARATE), fault(Level.SEPARATE, network=True, code="81078603")
    )

    assert conditions_of_3(
        (1.0, both), (2.0, BAD_NETWORK), (3.0, BAD_NETWORK), (4.0, GOOD), (5.0, GOOD)
    ) == [UNHEALTHY, RECOVERING, NETWORK, NETWORK, HEALTHY]


#: What of a reading is not read of the chip, and whether its faults are.
NOT_READ = [
    (Unread(chip=3, reason="its calls take long", is_slow=True), False),
    (Unread(chip=3, reason="timed out"), False),
    (Unread(chip=3, reason="timed out", is_partial=True), True),
    (Unread(chip=4, reason="timed out"), True),
]


@pytest.mark.parametrize(("unread", "is_read"), NOT_READ)
@pytest.mark.parametrize(
    ("bad", "meanwhile"), [(BAD, RECOVERING), (BAD_NETWORK, NETWORK)]
)
def test_a_hold_off_ends_only_by_a_reading_that_has_read_the_chip(
    bad: Reading, meanwhile: Condition, unread: Unread, *, is_read: bool
) -> None:
    """A slow chip came back by the time between two looks, whatever the next found."""
    between = replace(GOOD, unread=(unread,))
    _, first, second, third, last = conditions_of_3(
        (1.0, bad), (2.0, GOOD), (2.9, between), (9.0, between), (9.1, GOOD)
    )

    assert (first, second, last) == (meanwhile, meanwhile, HEALTHY)
    assert third == (HEALTHY if is_read else meanwhile)


def test_a_fault_that_returns_between_two_readings_of_a_chip_begins_anew() -> None:
    between = replace(GOOD, unread=(NOT_READ[0][0],))
    looks = [
        (now + after, reading)
        for now in (0.0, 10.0, 20.0)
        for after, reading in ((1.0, BAD), (5.0, GOOD), (9.0, between))
    ]

    assert conditions_of_3(*looks) == 3 * [UNHEALTHY, RECOVERING, RECOVERING]


def test_a_vanished_chip_is_unhealthy_and_never_forgotten() -> None:
    state, _ = conditions.step(Health(), ReadingTaken(reading=GOOD), 0.0)

    state, transitions = conditions.step(state, ReadingTaken(reading=GONE), 1.0)

    assert transitions == (
        Transition(chip=3, before=HEALTHY, after=UNHEALTHY, reason="vanished"),
    )
    assert sorted(state.chips) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert conditions_of_3((0.0, GOOD), (1.0, GONE), (2.0, GOOD), (3.0, GOOD)) == [
        HEALTHY,
        UNHEALTHY,
        RECOVERING,
        HEALTHY,
    ]


def test_a_chip_with_a_tolerated_fault_leaves_service_with_its_pod() -> None:
    reading = with_faults(fault(Level.PRE_SEPARATE))
    state, _ = conditions.step(
        Health(), ReadingTaken(reading=reading, in_use=frozenset({3})), 0.0
    )

    _, transitions = conditions.step(state, ReadingTaken(reading=reading), 1.0)

    assert transitions == (
        Transition(
            chip=3, before=HEALTHY, after=UNHEALTHY, reason="PreSeparateNPU 80E01801"
        ),
    )


def test_a_return_to_service_is_not_blamed_on_a_fault_that_is_tolerated() -> None:
    mild = with_faults(fault(Level.NOT_HANDLED))
    state, _ = conditions.step(Health(), ReadingTaken(reading=BAD), 0.0)

    _, transitions = conditions.step(state, ReadingTaken(reading=mild), 1.0)

    assert transitions == (
        Transition(chip=3, before=UNHEALTHY, after=RECOVERING, reason="faults cleared"),
    )


def test_the_state_says_what_was_found_and_since_when() -> None:
    state, _ = conditions.step(Health(), ReadingTaken(reading=BAD), 1.0)
    state, transitions = conditions.step(state, ReadingTaken(reading=BAD), 2.0)

    assert transitions == ()
    assert state.chips[3] == ChipHealth(
        condition=UNHEALTHY,
        finding=Finding.FAULTY,
        found_since=1.0,
        reason="SeparateNPU 80E01801",
    )


def test_a_step_leaves_its_input_alone() -> None:
    before = Health()
    state, _ = conditions.step(before, ReadingTaken(reading=GOOD), 0.0)
    kept = dict(state.chips)

    conditions.step(state, ReadingTaken(reading=BAD), 1.0)

    assert (dict(state.chips), dict(before.chips)) == (kept, {})
