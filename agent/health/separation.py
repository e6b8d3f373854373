"""Chips that people or rules have separated by name: a pure state machine.

A separated chip is out of service. The ConfigMap `mindx-dl-deviceinfo-<node>` names
such chips under the key `ManuallySeparateNPU`, and two sides write this key. A person
adds a name to separate a chip and removes it to release the chip. The agent adds the
name of a chip whose fault code returns too often (frequency rule). It removes this name
when the code has been gone for the release window of the rule.

A name can be missing because the agent has not written it yet. So a missing name
releases a chip only if the ConfigMap had that name before. A person may have written
the key's text. So the agent never replaces a text that it has not read.

Source: MindCluster's documents on `ManuallySeparateNPU`. In MindCluster a name added by
hand counts only after a restart; here it counts at once.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Separated chips, and which of them the node's ConfigMap names."""

    #: Separated now.
    separated: frozenset[int] = frozenset()
    #: The part of `separated` that the ConfigMap has named.
    confirmed: frozenset[int] = frozenset()
    #: Released by a rule; the ConfigMap may still name them.
    leaving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class NamesRead:
    """Event: the agent read `ManuallySeparateNPU`, and it names `chips`."""

    chips: frozenset[int]


@dataclass(frozen=True, slots=True)
class NamesAbsent:
    """Event: the key `ManuallySeparateNPU`, or its whole ConfigMap, is missing.

    This event separates or releases no chip.
    """


@dataclass(frozen=True, slots=True)
class RuleSeparated:
    """Event: a chip is taken out of service because a fault code returned too often."""

    chip: int


@dataclass(frozen=True, slots=True)
class RuleReleased:
    """Event: the fault code of a frequency rule has been gone for long enough."""

    chip: int


Event = NamesRead | NamesAbsent | RuleSeparated | RuleReleased


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Effect: chips whose names people have added to `ManuallySeparateNPU`, or removed.

    Both are ascending.
    """

    separated: tuple[int, ...] = ()
    released: tuple[int, ...] = ()


def step(state: State, event: Event) -> tuple[State, Edited]:
    """Apply an event; return the next state, and chips separated or released by people.

    Only the event `NamesRead` shows what people did.

    Args:
        state: State before the event; `State()` at start.
        event: Event to apply.
    """
    match event:
        case NamesRead(chips):
            return _apply_names(state, chips)
        case NamesAbsent():
            state = replace(state, confirmed=frozenset(), leaving=frozenset())
        case RuleSeparated(chip):
            state = replace(
                state,
                separated=state.separated | {chip},
                leaving=state.leaving - {chip},
            )
        case RuleReleased(chip):
            state = replace(
                state,
                separated=state.separated - {chip},
                confirmed=state.confirmed - {chip},
                leaving=state.leaving | state.separated & {chip},
            )
    return state, Edited()


def _apply_names(state: State, chips: frozenset[int]) -> tuple[State, Edited]:
    separated_chips = chips - state.separated - state.leaving
    released_chips = state.confirmed - chips
    separated = (state.separated | separated_chips) - released_chips
    after = State(
        separated=separated,
        confirmed=separated & chips,
        leaving=state.leaving & chips,
    )
    return after, Edited(
        separated=tuple(sorted(separated_chips)), released=tuple(sorted(released_chips))
    )
