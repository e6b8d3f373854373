"""Fault levels that are raised because a fault returns or stays: a pure state machine.

An *upgrade* replaces the level of a fault code on one chip by a higher level. There are
two kinds:

    by frequency  starts when the code has occurred several times within a window; ends
                  when no occurrence has lasted for the release window
    by duration   starts when the code has stayed longer than a time-out; ends when
                  the code has been gone for the recovery time

`agent.health.upgrades` applies the rules to one code on one chip, and says what an
occurrence is.

A frequency rule without a release window is different: its upgrade ends when a person
removes the chip's name from the key `ManuallySeparateNPU` of the node's ConfigMap
`mindx-dl-deviceinfo-<node>`.

A reading neither ends nor starts an upgrade of a chip whose codes it does not have, but
for events that have come since: the time in which a chip is not read is no time of its
faults.

Source: MindCluster's device plugin, `faultCustomization.json` and
`pkg/common/fault_code.go` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from agent.devices.reading import Level
from agent.health.code_history import CodeHistory, Presence
from agent.health.rules import FaultConfig
from agent.health.upgrades import KINDS, CodeRead, Kind, Upgrade, step_code

#: (chip, canonical code)
Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Histories of fault codes on chips, and the levels that are raised now."""

    histories: Mapping[Key, CodeHistory] = field(default_factory=dict)
    #: Ordered by chip, code and kind.
    upgrades: tuple[Upgrade, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsRead:
    """Event: one reading of the driver with the fault codes that rules can concern.

    These are the codes to which the driver gave no level. The event also has the rules.
    """

    #: Chips whose codes were read.
    chips: frozenset[int]
    #: {(chip, canonical code): its presence} for all faults. Of other chips, it is from
    #: an earlier reading or an event.
    present: Mapping[Key, Presence]
    config: FaultConfig
    #: Time of the reading. Unit: Unix milliseconds.
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChanged:
    """Effect: the level of a fault code on one chip was raised, or is so no longer."""

    upgrade: Upgrade
    #: Whether the upgrade has ended: the code has been gone for long enough, or it is
    #: gone and its rule was removed.
    is_over: bool


def step(
    state: State, read: FaultsRead, now: float
) -> tuple[State, tuple[LevelChanged, ...]]:
    """Apply one reading; return the next state, and the effects: ended upgrades first.

    Args:
        state: State before the reading; `State()` at start.
        read: The reading.
        now: Loop time. Unit: seconds; never decreases.
    """
    if not read.present and not state.histories:
        return state, ()  # the common case, at each reading
    with_rule = read.config.frequency.keys() | read.config.duration.keys()
    followed = {key for key in read.present if key[1] in with_rule}
    histories: dict[Key, CodeHistory] = {}
    upgrades: list[Upgrade] = []
    for key in sorted(state.histories.keys() | followed):
        chip, code = key
        history, new = step_code(
            state.histories.get(key, CodeHistory(since=now)),
            {old.kind: old for old in state.upgrades if (old.chip, old.code) == key},
            CodeRead(
                chip=chip,
                code=code,
                presence=read.present.get(key),
                is_known=chip in read.chips,
                frequency=read.config.frequency.get(code),
                duration=read.config.duration.get(code),
                now=now,
                now_ms=read.now_ms,
            ),
        )
        upgrades += (new[kind] for kind in KINDS if kind in new)
        if history.is_present or history.occurrences_s or new:
            histories[key] = history  # else nothing can follow from it
    after = State(histories=MappingProxyType(histories), upgrades=tuple(upgrades))
    changes = [
        LevelChanged(upgrade=upgrade, is_over=upgrade in state.upgrades)
        for upgrade in (*state.upgrades, *upgrades)
        if (upgrade in state.upgrades) != (upgrade in upgrades)
    ]
    return after, tuple(changes)


def restore(state: State, upgrades: Iterable[Upgrade], now: float) -> State:
    """Return the state with the fault levels that the agent before had raised.

    Upgrades and histories that are already in `state` stay unchanged. A code with an
    upgrade by duration has occurred once: the occurrence still lasts.
    """
    upgrade_by_name = {
        (upgrade.chip, upgrade.code, upgrade.kind.value): upgrade
        for upgrade in (*upgrades, *state.upgrades)
    }
    histories = {
        (chip, code): CodeHistory(
            since=now,
            quiet_s=now,
            occurrences_s=(now,)
            if (chip, code, Kind.DURATION.value) in upgrade_by_name
            else (),
        )
        for chip, code, _ in upgrade_by_name
    } | dict(state.histories)
    return State(
        histories=MappingProxyType(histories),
        upgrades=tuple(upgrade_by_name[name] for name in sorted(upgrade_by_name)),
    )


def lift_separation(state: State, chip: int) -> State:
    """Return the state after a person put a separated chip back into service.

    The chip's upgrades to the level ManuallySeparateNPU have ended. For their fault
    codes, frequency rules count only occurrences from now on.
    """
    lifted = [
        upgrade
        for upgrade in state.upgrades
        if upgrade.chip == chip and upgrade.level is Level.MANUALLY_SEPARATE
    ]
    keys = {(upgrade.chip, upgrade.code) for upgrade in lifted}
    histories = {
        key: replace(history, occurrences_s=()) if key in keys else history
        for key, history in state.histories.items()
    }
    remaining = tuple(upgrade for upgrade in state.upgrades if upgrade not in lifted)
    return State(histories=MappingProxyType(histories), upgrades=remaining)
