"""Fault levels that are raised because a fault returns or stays: a pure state machine.

An *upgrade* replaces the level of a fault code on one chip by a higher level. There are
two kinds:

    by frequency  starts when the code has come several times within a window; ends
                  when the code has been gone for the release window
    by duration   starts when the code has stayed longer than a time-out; ends when
                  the code has been gone for the recovery time

A frequency rule without a release window is different: its upgrade ends when a person
removes the chip's name from the key `ManuallySeparateNPU` of the node's ConfigMap
`mindx-dl-deviceinfo-<node>`.

A reading ends no upgrade of a chip that did not answer the driver, because the chip's
faults are then unknown.

Source: MindCluster's device plugin, `faultCustomization.json` and
`pkg/common/fault_code.go` (at 22bb3d98).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from agent.devices.reading import Level
from agent.health.rules import FaultConfig


class Kind(Enum):
    """Reason for a raised fault level.

    The fault returned too often, it stayed too long, or people separated the chip. The
    values are stored in the ConfigMap `mindx-dl-deviceinfo-<node>`, under the key
    `UpgradeFaultReason`.
    """

    FREQUENCY = "FaultFrequency"
    DURATION = "FaultDuration"
    #: Separated by hand; `monitor` makes these.
    AUTOFILL = "FaultAutofill"


#: (chip, canonical code)
Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Higher level that a fault code on one chip got because it returned or stayed."""

    chip: int
    #: Canonical code.
    code: str
    level: Level
    kind: Kind
    #: Unit: Unix milliseconds.
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeHistory:
    """Presence of a fault code on one chip: now or gone, since when, and past arrivals.

    All times are in seconds of the loop clock.
    """

    is_present: bool = False
    #: Since when the code is present, or gone.
    since: float
    #: Times of its arrivals, oldest first; none older than the window of its rule.
    arrivals_s: tuple[float, ...] = ()


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

    #: Chips that answered the driver.
    chips: frozenset[int]
    #: (chip, canonical code) of all faults.
    present: frozenset[Key]
    config: FaultConfig
    #: Time of the reading. Unit: Unix milliseconds.
    now_ms: int


@dataclass(frozen=True, slots=True)
class UpgradesRestored:
    """Event: levels that were still raised when the previous agent process ended."""

    upgrades: tuple[Upgrade, ...]


@dataclass(frozen=True, slots=True)
class SeparationLifted:
    """Event: a person put a separated chip back into service.

    A separated chip is one that `mindx-dl-deviceinfo-<node>`, the node's ConfigMap,
    keeps out of service by name. The event ends the chip's upgrades to the level
    ManuallySeparateNPU. For the fault codes of these upgrades, frequency rules then
    count only arrivals after the event.
    """

    chip: int


Event = FaultsRead | UpgradesRestored | SeparationLifted


@dataclass(frozen=True, slots=True)
class UpgradeStarted:
    """Effect: the level of a fault code on one chip was raised."""

    upgrade: Upgrade


@dataclass(frozen=True, slots=True)
class UpgradeEnded:
    """Effect: a fault code on one chip no longer has its raised level.

    The code has been gone for long enough, or it is gone and its rule was removed.
    A `SeparationLifted` event ends upgrades without this effect.
    """

    upgrade: Upgrade


Effect = UpgradeStarted | UpgradeEnded


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Apply one event; return the next state, and the effects.

    An effect says that one upgrade (raised level of a fault code) started or ended.
    Only the event `FaultsRead` has effects.

    Args:
        state: State before the event; `State()` at start.
        event: Event to apply.
        now: Loop time. Unit: seconds; never decreases.
    """
    match event:
        case FaultsRead():
            return _apply_faults(state, event, now)
        case UpgradesRestored(upgrades):
            return _restore(state, upgrades, now), ()
        case SeparationLifted(chip):
            return _lift_separation(state, chip), ()


def _apply_faults(
    state: State, read: FaultsRead, now: float
) -> tuple[State, tuple[Effect, ...]]:
    if not read.present and not state.histories:
        return state, ()  # the common case, at each reading
    keys_with_rule = {key for key in read.present if _has_rule(key[1], read.config)}
    histories = {
        key: _extend_history(state.histories.get(key), key, read, now)
        for key in sorted(state.histories.keys() | keys_with_rule)
    }
    old_upgrades = {_name_of(upgrade): upgrade for upgrade in state.upgrades}
    upgrades = {
        name: upgrade
        for name, upgrade in old_upgrades.items()
        if _is_lasting(upgrade, histories, read, now)
    }
    ended = [old_upgrades[name] for name in old_upgrades if name not in upgrades]
    started = [
        upgrade
        for key, history in histories.items()
        for upgrade in _met_upgrades(key, history, read, now)
        if _name_of(upgrade) not in upgrades
    ]
    upgrades |= {_name_of(upgrade): upgrade for upgrade in started}
    histories = {
        key: history
        for key, history in histories.items()
        if not _is_closed(key, history, upgrades.values())
    }
    state = State(
        histories=MappingProxyType(histories),
        upgrades=tuple(upgrades[name] for name in sorted(upgrades)),
    )
    return state, (*map(UpgradeEnded, ended), *map(UpgradeStarted, started))


def _extend_history(
    old_history: CodeHistory | None, key: Key, read: FaultsRead, now: float
) -> CodeHistory:
    chip, code = key
    history = old_history or CodeHistory(since=now)
    is_present = key in read.present
    if chip in read.chips and is_present is not history.is_present:
        arrivals_s = (*history.arrivals_s, now) if is_present else history.arrivals_s
        history = replace(
            history, is_present=is_present, since=now, arrivals_s=arrivals_s
        )
    rule = read.config.frequency.get(code)
    oldest = now - rule.window_s if rule else now
    return replace(
        history, arrivals_s=tuple(at for at in history.arrivals_s if at > oldest)
    )


def _met_upgrades(
    key: Key, history: CodeHistory, read: FaultsRead, now: float
) -> Iterable[Upgrade]:
    """Yield the raised levels that the rules demand now for one fault code on one chip.

    A yielded level may have been raised already by an earlier reading.

    Args:
        key: Chip, and fault code in upper case without leading zeros.
        history: History of the code on the chip, including the reading in `read`.
        read: Event that has the newest reading, and the rules.
        now: Loop time. Unit: seconds.
    """
    chip, code = key
    levels: list[tuple[Kind, Level]] = []
    frequency = read.config.frequency.get(code)
    if frequency and len(history.arrivals_s) >= frequency.times:
        levels.append((Kind.FREQUENCY, frequency.level))
    duration = read.config.duration.get(code)
    if duration and now - history.since > duration.timeout_s:
        levels.append((Kind.DURATION, duration.level))
    for kind, level in levels if history.is_present else ():
        yield Upgrade(chip=chip, code=code, level=level, kind=kind, at_ms=read.now_ms)


def _is_lasting(
    upgrade: Upgrade, histories: Mapping[Key, CodeHistory], read: FaultsRead, now: float
) -> bool:
    history = histories.get((upgrade.chip, upgrade.code))
    if history is None or history.is_present or upgrade.chip not in read.chips:
        return True
    gone_s = now - history.since
    if upgrade.kind is Kind.DURATION:
        duration = read.config.duration.get(upgrade.code)
        return duration is not None and gone_s <= duration.recover_s
    frequency = read.config.frequency.get(upgrade.code)
    if frequency is None:  # the rule was removed, and no person has released the chip
        return upgrade.level is Level.MANUALLY_SEPARATE
    return not frequency.release_s or gone_s <= frequency.release_s


def _is_closed(key: Key, history: CodeHistory, upgrades: Iterable[Upgrade]) -> bool:
    """Whether the history of a fault code on a chip can be deleted.

    It can if the code is not on the chip, no frequency rule still counts an arrival of
    the code, and no upgrade has raised its level.
    """
    if history.is_present or history.arrivals_s:
        return False
    return all((upgrade.chip, upgrade.code) != key for upgrade in upgrades)


def _restore(state: State, upgrades: Iterable[Upgrade], now: float) -> State:
    """Add to the state the fault levels that the previous agent process had raised.

    Upgrades and histories that are already in `state` stay unchanged.
    """
    upgrade_by_name = {
        _name_of(upgrade): upgrade for upgrade in (*upgrades, *state.upgrades)
    }
    histories = {
        (chip, code): CodeHistory(since=now) for chip, code, kind in upgrade_by_name
    } | dict(state.histories)
    return State(
        histories=MappingProxyType(histories),
        upgrades=tuple(upgrade_by_name[name] for name in sorted(upgrade_by_name)),
    )


def _lift_separation(state: State, chip: int) -> State:
    """End a chip's upgrades to ManuallySeparateNPU; forget arrivals of their codes."""
    lifted = [
        upgrade
        for upgrade in state.upgrades
        if upgrade.chip == chip and upgrade.level is Level.MANUALLY_SEPARATE
    ]
    keys = {(upgrade.chip, upgrade.code) for upgrade in lifted}
    histories = {
        key: replace(history, arrivals_s=()) if key in keys else history
        for key, history in state.histories.items()
    }
    remaining = tuple(upgrade for upgrade in state.upgrades if upgrade not in lifted)
    return State(histories=MappingProxyType(histories), upgrades=remaining)


def _has_rule(code: str, config: FaultConfig) -> bool:
    return code in config.frequency or code in config.duration


def _name_of(upgrade: Upgrade) -> tuple[int, str, str]:
    return upgrade.chip, upgrade.code, upgrade.kind.value
