"""Chips that are separated by name, by people or by a rule: a pure state machine.

The key `ManuallySeparateNPU` of the node's ConfigMap has two writers. A person adds a
name to separate a chip and removes it to release the chip. The agent adds chips that a
frequency rule separates, and removes them when the rule releases them.

So a missing name releases a chip only if the ConfigMap had that name before. And the
agent never replaces a text that it has not read.

Source: MindCluster's documents on `ManuallySeparateNPU`. There a name added by hand
counts only after a restart; here it counts at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Chips that are separated by name, and those that the node's ConfigMap names."""

    #: Separated now.
    separated: frozenset[int] = frozenset()
    #: The part of `separated` that the ConfigMap has named.
    confirmed: frozenset[int] = frozenset()
    #: Released by a rule; the ConfigMap may still name them.
    leaving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NamesRead:
    """Event: a newer version of the node's ConfigMap names exactly these chips."""

    chips: frozenset[int]


@dataclass(frozen=True, slots=True)
class NamesAbsent:
    """Event: the node's ConfigMap, or its key `ManuallySeparateNPU`, is missing.

    No chip is separated or released by it.
    """


@dataclass(frozen=True, slots=True)
class RuleSeparated:
    """Event: a frequency rule separates a chip."""

    chip: int


@dataclass(frozen=True, slots=True)
class RuleReleased:
    """Event: the frequency rule that separated a chip releases it."""

    chip: int


Event = NamesRead | NamesAbsent | RuleSeparated | RuleReleased


@dataclass(frozen=True, slots=True)
class ChipsSeparated:
    """Effect: a person separated these chips by adding names to the ConfigMap."""

    chips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChipsReleased:
    """Effect: a person released these chips by removing names from the ConfigMap."""

    chips: tuple[int, ...]


Effect = ChipsSeparated | ChipsReleased


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """Apply one event; return the next state and the changes made by people.

    Args:
        state: State before the event; `State()` at start.
        event: Event to apply.
    """
    match event:
        case NamesRead(chips):
            return _apply_names(state, chips)
        case NamesAbsent():
            return replace(state, confirmed=frozenset(), leaving=frozenset()), ()
        case RuleSeparated(chip):
            state = replace(
                state,
                separated=state.separated | {chip},
                leaving=state.leaving - {chip},
            )
        case RuleReleased(chip) if chip in state.separated:
            state = replace(
                state,
                separated=state.separated - {chip},
                confirmed=state.confirmed - {chip},
                leaving=state.leaving | {chip},
            )
        case RuleReleased():
            pass
    return state, ()


def _apply_names(
    state: State, chips: frozenset[int]
) -> tuple[State, tuple[Effect, ...]]:
    separated_chips = chips - state.separated - state.leaving
    released_chips = state.confirmed - chips
    separated = (state.separated | separated_chips) - released_chips
    after = State(
        separated=separated,
        confirmed=separated & chips,
        leaving=state.leaving & chips,
    )
    return after, (
        *_make_effects(ChipsSeparated, separated_chips),
        *_make_effects(ChipsReleased, released_chips),
    )


def _make_effects(
    effect: type[ChipsSeparated] | type[ChipsReleased], chips: Iterable[int]
) -> tuple[Effect, ...]:
    sorted_chips = tuple(sorted(chips))
    return (effect(sorted_chips),) if sorted_chips else ()
