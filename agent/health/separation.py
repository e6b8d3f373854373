"""Chips that people have taken out of service by name: a pure state machine.

The key `ManuallySeparateNPU` of the node's ConfigMap has two writers. A person adds
a name to separate a chip and removes it to release the chip; we add the chips that a
frequency rule separates, and remove them when the rule lets them go. So a name that
is missing is a release only if it has once stood there; and we never write on top of
a text that we have not read.

Source: MindCluster's documents on `ManuallySeparateNPU`. There a name that is added
by hand counts only after a restart; here it counts at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Which chips are separated, and what the ConfigMap says of them."""

    #: In force.
    separated: frozenset[int] = frozenset()
    #: Of those in force, the ones whose names have stood in the ConfigMap.
    confirmed: frozenset[int] = frozenset()
    #: Released by a rule; their names may stand in the ConfigMap still.
    leaving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Named:
    """Event: the ConfigMap names these chips, in a version newer than any before."""

    chips: frozenset[int]


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Event: there is no ConfigMap, or no such key: nobody has said anything."""


@dataclass(frozen=True, slots=True)
class Separated:
    """Event: a rule separates a chip."""

    chip: int


@dataclass(frozen=True, slots=True)
class Released:
    """Event: the rule that separated a chip lets it go."""

    chip: int


Event = Named | Unnamed | Separated | Released


@dataclass(frozen=True, slots=True)
class TakenOut:
    """Effect: a person has separated these chips."""

    chips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LetBack:
    """Effect: a person has released these chips."""

    chips: tuple[int, ...]


Effect = TakenOut | LetBack


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """What follows from one event.

    Args:
        state: Starts as `State()`.
        event: What happened.
    """
    match event:
        case Named(chips):
            return _named(state, chips)
        case Unnamed():
            return replace(state, confirmed=frozenset(), leaving=frozenset()), ()
        case Separated(chip):
            state = replace(
                state,
                separated=state.separated | {chip},
                leaving=state.leaving - {chip},
            )
        case Released(chip) if chip in state.separated:
            state = replace(
                state,
                separated=state.separated - {chip},
                confirmed=state.confirmed - {chip},
                leaving=state.leaving | {chip},
            )
        case Released():
            pass
    return state, ()


def _named(state: State, chips: frozenset[int]) -> tuple[State, tuple[Effect, ...]]:
    added = chips - state.separated - state.leaving
    freed = state.confirmed - chips
    separated = (state.separated | added) - freed
    after = State(
        separated=separated,
        confirmed=separated & chips,
        leaving=state.leaving & chips,
    )
    return after, (*_told(TakenOut, added), *_told(LetBack, freed))


def _told(
    effect: type[TakenOut] | type[LetBack], chips: Iterable[int]
) -> tuple[Effect, ...]:
    ordered = tuple(sorted(chips))
    return (effect(ordered),) if ordered else ()
