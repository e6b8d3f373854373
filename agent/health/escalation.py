"""Faults that grow worse by returning or by staying: a pure state machine.

A code that comes several times within a window, or that stays longer than its
time-out, gives its chip an *upgrade*: a level that lasts until its way back is
walked. Of a duration, that is when the code has been gone for long enough; of a
frequency, when it has been gone for the release window, or, where there is none,
when a person takes the chip's name out of `ManuallySeparateNPU` (`Pardoned`).

Only codes that have a rule are followed, and only on chips that answer: of a chip
that is silent nobody knows what it would say.

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
    """Why a fault has another level than its code. The values are wire names."""

    FREQUENCY = "FaultFrequency"
    DURATION = "FaultDuration"
    #: Separated by hand; never made here.
    AUTOFILL = "FaultAutofill"


#: Chip and canonical code.
Key = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A level that a fault has got by returning or by staying."""

    chip: int
    #: Canonical.
    code: str
    level: Level
    kind: Kind
    #: Unit: Unix milliseconds.
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one code has come and gone on one chip. Times are loop seconds."""

    is_present: bool = False
    #: Since when it is present, or gone.
    since: float
    #: When it came, the oldest first; none older than the window of its rule.
    came: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Courses of codes that have rules, and the upgrades in force."""

    courses: Mapping[Key, Course] = field(default_factory=dict)
    #: Ordered by chip, code and kind.
    upgrades: tuple[Upgrade, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """Event: what the chips report now."""

    #: Chips that answered.
    chips: frozenset[int]
    #: (chip, canonical code) of all faults.
    present: frozenset[Key]
    config: FaultConfig
    #: Unix milliseconds.
    now_ms: int


@dataclass(frozen=True, slots=True)
class Restored:
    """Event: these upgrades were in force when the agent before us ended."""

    upgrades: tuple[Upgrade, ...]


@dataclass(frozen=True, slots=True)
class Pardoned:
    """Event: a person has released a chip; what led to its separation is forgotten."""

    chip: int


Event = Looked | Restored | Pardoned


@dataclass(frozen=True, slots=True)
class Upgraded:
    """Effect: a fault has become worse."""

    upgrade: Upgrade


@dataclass(frozen=True, slots=True)
class Eased:
    """Effect: an upgrade has ended by itself."""

    upgrade: Upgrade


Effect = Upgraded | Eased


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """What follows from one event.

    Args:
        state: Starts as `State()`.
        event: What happened.
        now: Loop time. Unit: seconds; never decreases.
    """
    match event:
        case Looked():
            return _looked(state, event, now)
        case Restored(upgrades):
            return _restored(state, upgrades, now), ()
        case Pardoned(chip):
            return _pardoned(state, chip), ()


def _looked(state: State, look: Looked, now: float) -> tuple[State, tuple[Effect, ...]]:
    if not look.present and not state.courses:
        return state, ()  # the rule, and it is asked at each look
    ruled = {key for key in look.present if _has_rule(key[1], look.config)}
    courses = {
        key: _course(state.courses.get(key), key, look, now)
        for key in sorted(state.courses.keys() | ruled)
    }
    before = {_name(upgrade): upgrade for upgrade in state.upgrades}
    after = {
        name: upgrade
        for name, upgrade in before.items()
        if _lasts(upgrade, courses, look, now)
    }
    eased = [before[name] for name in before if name not in after]
    made = [
        upgrade
        for key, course in courses.items()
        for upgrade in _due(key, course, look, now)
        if _name(upgrade) not in after
    ]
    after |= {_name(upgrade): upgrade for upgrade in made}
    courses = {
        key: course
        for key, course in courses.items()
        if not _is_forgotten(key, course, after.values())
    }
    state = State(
        courses=MappingProxyType(courses),
        upgrades=tuple(after[name] for name in sorted(after)),
    )
    return state, (*map(Eased, eased), *map(Upgraded, made))


def _course(before: Course | None, key: Key, look: Looked, now: float) -> Course:
    chip, code = key
    course = before or Course(since=now)
    is_present = key in look.present
    if chip in look.chips and is_present is not course.is_present:
        came = (*course.came, now) if is_present else course.came
        course = replace(course, is_present=is_present, since=now, came=came)
    rule = look.config.frequency.get(code)
    oldest = now - rule.window_s if rule else now
    return replace(course, came=tuple(at for at in course.came if at > oldest))


def _due(key: Key, course: Course, look: Looked, now: float) -> Iterable[Upgrade]:
    """Return the upgrades whose condition is met; they may be in force already."""
    chip, code = key
    often = look.config.frequency.get(code)
    if often and course.is_present and len(course.came) >= often.times:
        yield Upgrade(
            chip=chip,
            code=code,
            level=often.level,
            kind=Kind.FREQUENCY,
            at_ms=look.now_ms,
        )
    long = look.config.duration.get(code)
    if long and course.is_present and now - course.since > long.timeout_s:
        yield Upgrade(
            chip=chip,
            code=code,
            level=long.level,
            kind=Kind.DURATION,
            at_ms=look.now_ms,
        )


def _lasts(
    upgrade: Upgrade, courses: Mapping[Key, Course], look: Looked, now: float
) -> bool:
    course = courses.get((upgrade.chip, upgrade.code))
    if course is None or course.is_present or upgrade.chip not in look.chips:
        return True
    gone_s = now - course.since
    if upgrade.kind is Kind.DURATION:
        long = look.config.duration.get(upgrade.code)
        return long is not None and gone_s <= long.recover_s
    often = look.config.frequency.get(upgrade.code)
    if often is None:  # the rule has been taken away; people have separated nothing
        return upgrade.level is Level.MANUALLY_SEPARATE
    return not often.release_s or gone_s <= often.release_s


def _is_forgotten(key: Key, course: Course, upgrades: Iterable[Upgrade]) -> bool:
    """Tell whether nothing can follow from a course any more."""
    if course.is_present or course.came:
        return False
    return all((upgrade.chip, upgrade.code) != key for upgrade in upgrades)


def _restored(state: State, upgrades: Iterable[Upgrade], now: float) -> State:
    """Take in upgrades of a predecessor; their codes count as gone from now on."""
    known = {_name(upgrade): upgrade for upgrade in (*upgrades, *state.upgrades)}
    courses = {(chip, code): Course(since=now) for chip, code, kind in known} | dict(
        state.courses
    )
    return State(
        courses=MappingProxyType(courses),
        upgrades=tuple(known[name] for name in sorted(known)),
    )


def _pardoned(state: State, chip: int) -> State:
    """Forget the upgrades that separated a chip, and the courses that led to them.

    A code that is still there is not held against the chip once more, but its coming
    back is.
    """
    led = {
        (upgrade.chip, upgrade.code)
        for upgrade in state.upgrades
        if upgrade.chip == chip and upgrade.level is Level.MANUALLY_SEPARATE
    }
    courses = {
        key: replace(course, came=()) if key in led else course
        for key, course in state.courses.items()
    }
    kept = tuple(
        upgrade
        for upgrade in state.upgrades
        if upgrade.chip != chip or upgrade.level is not Level.MANUALLY_SEPARATE
    )
    return State(courses=MappingProxyType(courses), upgrades=kept)


def _has_rule(code: str, config: FaultConfig) -> bool:
    return code in config.frequency or code in config.duration


def _name(upgrade: Upgrade) -> tuple[int, str, str]:
    return upgrade.chip, upgrade.code, upgrade.kind.value
