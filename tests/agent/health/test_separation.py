"""Chips separated by name: who has named them, and who may let them go."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.health import separation
from agent.health.separation import (
    Edited,
    Event,
    NamesAbsent,
    NamesRead,
    RuleReleased,
    RuleSeparated,
    State,
)


def named(*chips: int) -> NamesRead:
    return NamesRead(frozenset(chips))


def separated(*chips: int) -> Edited:
    return Edited(separated=chips)


def released(*chips: int) -> Edited:
    return Edited(released=chips)


LET_GO = (RuleSeparated(3), named(3), RuleReleased(3))


@pytest.mark.parametrize(
    ("events", "in_force", "told"),
    [
        # a name takes its chip out, and its absence lets it back
        ([named(3, 5), named(5)], {5}, [separated(3, 5), released(3)]),
        # a chip that a rule separates stays while nobody has read its name
        ([RuleSeparated(3), named(), named(7)], {3, 7}, [separated(7)]),
        # a person releases a chip that a rule has separated
        ([RuleSeparated(3), named(3), named()], set(), [released(3)]),
        # a chip that a rule lets go is not taken for separated by hand
        ([*LET_GO, named(3), named()], set(), []),
        # it can be separated by hand, or by a rule again
        ([*LET_GO, named(), named(3)], {3}, [separated(3)]),
        ([*LET_GO, RuleSeparated(3), named(3), named()], set(), [released(3)]),
        # what a rule lets go that was released already is no news
        (
            [named(3), named(), RuleReleased(3)],
            set(),
            [separated(3), released(3)],
        ),
        # a deleted ConfigMap releases nobody, whether it comes back empty or with the
        # names that we write into it
        ([named(3), NamesAbsent(), named()], {3}, [separated(3)]),
    ],
)
def test_chips_are_in_force_until_who_separated_them_lets_them_go(
    events: list[Event], in_force: set[int], told: list[Edited]
) -> None:
    state, found = State(), list[Edited]()
    for event in events:
        state, edited = separation.step(state, event)
        found += [edited] if edited != Edited() else []

    assert (set(state.separated), found) == (in_force, told)


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
        (state, number): after
        # events: named(), named(0), NamesAbsent, RuleSeparated, RuleReleased
        for state, found in (
            ("", ("", "sc", "", "s", "")),
            ("s", ("s", "sc", "s", "s", "l")),
            ("sc", ("", "sc", "s", "sc", "l")),
            ("l", ("", "l", "", "s", "l")),
        )
        for number, after in enumerate(found)
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
