"""Chips separated by name: who has named them, and who may let them go."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.health import separation
from agent.health.separation import (
    ChipsReleased,
    ChipsSeparated,
    Effect,
    Event,
    NamesAbsent,
    NamesRead,
    RuleReleased,
    RuleSeparated,
    State,
)


def named(*chips: int) -> NamesRead:
    return NamesRead(frozenset(chips))


def after(*events: Event) -> tuple[set[int], list[Effect]]:
    """The chips in force after these events, and all that was told."""
    state, told = State(), list[Effect]()
    for event in events:
        state, effects = separation.step(state, event)
        told += effects
    return set(state.separated), told


def test_a_name_takes_its_chip_out_and_its_absence_lets_it_back() -> None:
    assert after(named(3, 5), named(5)) == (
        {5},
        [ChipsSeparated((3, 5)), ChipsReleased((3,))],
    )


def test_a_chip_that_a_rule_separates_stays_while_nobody_has_read_its_name() -> None:
    assert after(RuleSeparated(3), named(), named(7)) == (
        {3, 7},
        [ChipsSeparated((7,))],
    )


def test_a_chip_that_a_rule_separated_is_released_by_a_person() -> None:
    assert after(RuleSeparated(3), named(3), named()) == (set(), [ChipsReleased((3,))])


def test_a_chip_that_a_rule_lets_go_is_not_taken_for_separated_by_hand() -> None:
    assert after(RuleSeparated(3), named(3), RuleReleased(3), named(3), named()) == (
        set(),
        list[Effect](),
    )


def test_a_chip_that_a_rule_let_go_can_be_separated_by_hand() -> None:
    assert after(RuleSeparated(3), named(3), RuleReleased(3), named(), named(3)) == (
        {3},
        [ChipsSeparated((3,))],
    )


def test_a_chip_that_a_rule_let_go_can_be_separated_by_a_rule_again() -> None:
    assert after(
        RuleSeparated(3), named(3), RuleReleased(3), RuleSeparated(3), named(3), named()
    ) == (set(), [ChipsReleased((3,))])


def test_what_a_rule_lets_go_that_was_released_already_is_no_news() -> None:
    assert after(named(3), named(), RuleReleased(3)) == (
        set(),
        [ChipsSeparated((3,)), ChipsReleased((3,))],
    )


def test_a_deleted_configmap_releases_nobody() -> None:
    # whether it comes back empty, or with the names that we write into it
    assert after(named(3), NamesAbsent(), named()) == ({3}, [ChipsSeparated((3,))])


EVENTS: tuple[Event, ...] = (
    named(),
    named(0),
    NamesAbsent(),
    RuleSeparated(0),
    RuleReleased(0),
)


def test_each_event_in_each_state_of_one_chip() -> None:
    """All states that one chip can be in, and where each event leads."""
    states = {State()}
    while True:
        found = {separation.step(s, e)[0] for s, e in product(states, EVENTS)}
        if found <= states:
            break
        states |= found

    def name(state: State) -> str:
        return "".join(
            letter
            for letter, chips in (
                ("s", state.separated),
                ("c", state.confirmed),
                ("l", state.leaving),
            )
            if chips
        )

    table = {
        (name(s), i): name(separation.step(s, e)[0])
        for s in states
        for i, e in enumerate(EVENTS)
    }
    assert table == {
        # state: named(), named(0), Unnamed, Separated, Released
        **dict(zip([("", i) for i in range(5)], ("", "sc", "", "s", ""), strict=True)),
        **dict(
            zip([("s", i) for i in range(5)], ("s", "sc", "s", "s", "l"), strict=True)
        ),
        **dict(
            zip([("sc", i) for i in range(5)], ("", "sc", "s", "sc", "l"), strict=True)
        ),
        **dict(zip([("l", i) for i in range(5)], ("", "l", "", "s", "l"), strict=True)),
    }


@pytest.mark.property
@given(
    st.lists(
        st.one_of(
            st.frozensets(st.integers(0, 3)).map(NamesRead),
            st.just(NamesAbsent()),
            st.integers(0, 3).map(RuleSeparated),
            st.integers(0, 3).map(RuleReleased),
        ),
        max_size=12,
    )
)
def test_nobody_is_released_but_by_a_person_who_saw_the_name_or_by_a_rule(
    events: list[Event],
) -> None:
    state = State()
    for event in events:
        before, (state, _) = state, separation.step(state, event)
        gone = before.separated - state.separated
        if isinstance(event, RuleReleased):
            assert gone <= {event.chip}
        elif isinstance(event, NamesRead):
            assert gone == before.confirmed - event.chips
        else:
            assert not gone
        assert state.confirmed <= state.separated
        assert not state.leaving & state.separated
