"""Condition of each chip over time: a pure state machine over readings of the driver.

A chip is in one of four conditions. Each reading gives a chip a finding, its state in
that reading. The table `TRANSITIONS` has the next condition for each condition and
finding. No condition is final:

    HEALTHY            in service
    UNHEALTHY          out of service: a fault demands it, or the chip does not answer
    NETWORK_UNHEALTHY  in service, but the chip's parameter-plane network has a fault,
                       or had one until lately
    RECOVERING         out of service: the chip was UNHEALTHY until lately

The parameter-plane network connects chips of different nodes. The hold-off is a time
(`ReadingTaken.recover_s`). A chip leaves RECOVERING for a better condition only after
its finding has been the same for the hold-off. So a chip with a flapping fault is not
offered again and again. From NETWORK_UNHEALTHY to HEALTHY, the hold-off counts too.
After a fault of its network only, a chip does not become RECOVERING. The chip was in
service all along, and taking it out would only do harm.

Source: MindCluster's device plugin, `pkg/common/fault_code.go` (at 22bb3d98).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType

from agent.devices.reading import ChipFault, Level, Reading, worst
from scheduler_core.node import chips as chip_sets


class Condition(Enum):
    """Condition of a chip; the values are shown to people."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    NETWORK_UNHEALTHY = "network-unhealthy"
    RECOVERING = "recovering"


class Finding(Enum):
    """What the driver's readings show of one chip, and whether that has lasted.

    A member whose name ends in STEADY means that the readings have shown the same for
    at least `ReadingTaken.recover_s` seconds. The order is that of the columns of
    `TRANSITIONS`.
    """

    FAULTY = "faulty"
    NETWORK_FAULTY = "network faulty"
    NETWORK_FAULTY_STEADY = "network faulty for the hold-off"
    CLEAR = "clear"
    CLEAR_STEADY = "clear for the hold-off"


class Tolerance(Enum):
    """Whether a chip with a fault stays in service: always, while in use, or never.

    `TOLERANCE` gives each fault level one of these. For a fault of the chip's network,
    the table `NETWORK_TOLERATED` counts instead.
    """

    ALWAYS = "always"
    IN_USE = "while a pod uses it"
    NEVER = "never"


#: {level of a chip's own fault: tolerance}. The reference tolerates FreeRestartNPU
#: only with its grace tolerance, a part of hot reset, which the agent does not have.
TOLERANCE: Mapping[Level, Tolerance] = MappingProxyType(
    {
        Level.NORMAL: Tolerance.ALWAYS,
        Level.NOT_HANDLED: Tolerance.ALWAYS,
        Level.SUB_HEALTH: Tolerance.ALWAYS,
        Level.RESTART_REQUEST: Tolerance.NEVER,
        Level.RESTART_BUSINESS: Tolerance.NEVER,
        Level.FREE_RESTART: Tolerance.NEVER,
        Level.RESTART: Tolerance.NEVER,
        Level.PRE_SEPARATE: Tolerance.IN_USE,
        Level.SEPARATE: Tolerance.NEVER,
        Level.MANUALLY_SEPARATE: Tolerance.NEVER,
    }
)

#: {level of a network fault: whether the network counts as healthy}. The restart
#: levels make no sense for a link and count as NotHandleFault.
NETWORK_TOLERATED: Mapping[Level, bool] = MappingProxyType(
    {
        Level.NORMAL: True,
        Level.NOT_HANDLED: True,
        Level.SUB_HEALTH: False,
        Level.RESTART_REQUEST: True,
        Level.RESTART_BUSINESS: True,
        Level.FREE_RESTART: True,
        Level.RESTART: True,
        Level.PRE_SEPARATE: False,
        Level.SEPARATE: False,
        Level.MANUALLY_SEPARATE: False,
    }
)


def _table() -> dict[tuple[Condition, Finding], Condition]:
    healthy, unhealthy = Condition.HEALTHY, Condition.UNHEALTHY
    network, recovering = Condition.NETWORK_UNHEALTHY, Condition.RECOVERING
    rows = {
        healthy: (unhealthy, network, network, healthy, healthy),
        unhealthy: (unhealthy, recovering, recovering, recovering, recovering),
        network: (unhealthy, network, network, network, healthy),
        recovering: (unhealthy, recovering, network, recovering, healthy),
    }
    return {
        (condition, finding): after
        for condition, row in rows.items()
        for finding, after in zip(Finding, row, strict=True)
    }


#: {(condition, finding): next condition}, for every pair.
TRANSITIONS: Mapping[tuple[Condition, Finding], Condition] = MappingProxyType(_table())

#: Reason of a chip that the product has and that does not answer.
VANISHED = "vanished"
#: Time for which a chip whose faults cannot be read stays as it was last read, while
#: others can be read. Unit: seconds.
UNREAD_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipHealth:
    """Condition of one chip, and what the latest reading of the driver found on it."""

    condition: Condition = Condition.HEALTHY
    finding: Finding = Finding.CLEAR
    #: Since when the finding is the same, steady or not. Unit: seconds, loop clock.
    found_since: float = -inf
    #: Since when its faults have not been read; None when they were. Unit: seconds,
    #: loop clock.
    unread_since: float | None = None
    #: Worst fault and its codes, "vanished", why it cannot be read, or "" without any.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of every chip of one product line, even of chips that no longer answer."""

    #: {physical id: health}
    chips: Mapping[int, ChipHealth] = field(default_factory=dict)

    def chips_in(self, *conditions: Condition) -> tuple[int, ...]:
        """Return the ids of the chips in any of these conditions, ascending."""
        return tuple(
            chip
            for chip, health in sorted(self.chips.items())
            if health.condition in conditions
        )

    @property
    def in_service(self) -> tuple[int, ...]:
        """Physical ids of the chips that the kubelet may give out, ascending."""
        return self.chips_in(Condition.HEALTHY, Condition.NETWORK_UNHEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Change of one chip from a condition to another, with its cause."""

    chip: int
    before: Condition
    after: Condition
    #: Cause: level and codes, "vanished", or "faults cleared".
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTaken:
    """Event: the latest reading is judged, while pods use the chips in `in_use`.

    A chip that a fault took out of service stays out for at least `recover_s` seconds
    after the fault has ended.
    """

    reading: Reading
    #: Chips that a pod uses now: some levels are tolerated on these.
    in_use: frozenset[int] = frozenset()
    #: The hold-off. Unit: seconds, 0 or more.
    recover_s: float = 1.0


def step(
    state: Health, event: ReadingTaken, now: float
) -> tuple[Health, tuple[Transition, ...]]:
    """Apply one reading; return the health of all chips and the changes of conditions.

    A chip in `state` or in `event.reading.product.all_chips` becomes UNHEALTHY if the
    reading lacks it.

    Args:
        state: Health before the reading; `Health()` at start. A chip that is not in
            `state` counts as healthy before the reading.
        event: The reading, and the chips that pods use.
        now: Loop time of this call. Unit: seconds; never decreases.

    Returns:
        Health after the reading, and its transitions ordered by chip.
    """
    chips: dict[int, ChipHealth] = {}
    transitions: list[Transition] = []
    all_chips = chip_sets.ids_of(event.reading.product.all_chips)
    for chip in sorted({*all_chips, *state.chips, *event.reading.chips}):
        old_health = state.chips.get(chip, ChipHealth())
        new_health = _chip_step(old_health, chip, event, now)
        chips[chip] = new_health
        if new_health.condition is not old_health.condition:
            transitions.append(
                Transition(
                    chip=chip,
                    before=old_health.condition,
                    after=new_health.condition,
                    reason=_cause(new_health),
                )
            )
    return Health(chips=MappingProxyType(chips)), tuple(transitions)


_STEADY = MappingProxyType(
    {
        Finding.CLEAR: Finding.CLEAR_STEADY,
        Finding.NETWORK_FAULTY: Finding.NETWORK_FAULTY_STEADY,
    }
)


def is_stable(state: Health, reading: Reading) -> bool:
    """Whether the same reading, applied again later, would change no chip's condition.

    The result is also False if the reading has a fault of level PreSeparateNPU. Such a
    fault can take its chip out of service as soon as no pod uses the chip.

    Args:
        state: Health after the reading was applied.
        reading: The reading that was applied last.
    """
    if any(health.unread_since is not None for health in state.chips.values()):
        return False
    is_steady = all(
        TRANSITIONS[health.condition, finding] is health.condition
        for health in state.chips.values()
        for finding in (health.finding, _STEADY.get(health.finding, health.finding))
    )
    return is_steady and not any(
        TOLERANCE[fault.seriousness] is Tolerance.IN_USE for fault in reading.faults
    )


def _chip_step(
    old_health: ChipHealth, chip: int, taken: ReadingTaken, now: float
) -> ChipHealth:
    unread = _why_unread(chip, taken.reading)
    unread_since = None
    if unread:
        unread_since = (
            now if old_health.unread_since is None else old_health.unread_since
        )
    is_blind = unread_since is not None and now - unread_since >= UNREAD_S
    finding = Finding.FAULTY if is_blind else _finding(chip, taken)
    since = old_health.found_since if finding is old_health.finding else now
    held_off = now - since >= taken.recover_s
    effective_finding = _STEADY.get(finding, finding) if held_off else finding
    return ChipHealth(
        condition=TRANSITIONS[old_health.condition, effective_finding],
        finding=finding,
        found_since=since,
        unread_since=unread_since,
        reason=unread if is_blind else _reason(chip, taken.reading),
    )


def _why_unread(chip: int, reading: Reading) -> str:
    """Return why the faults of a chip cannot be read; "" if they were read."""
    reasons = (
        unread.reason
        for unread in reading.unread
        if unread.chip == chip and not unread.is_partial
    )
    return next((f"cannot be read: {reason}" for reason in reasons), "")


def _cause(after: ChipHealth) -> str:
    # a tolerated fault may remain; it is not why the chip came back
    return "faults cleared" if after.finding is Finding.CLEAR else after.reason


def _finding(chip: int, taken: ReadingTaken) -> Finding:
    if chip not in taken.reading.chips:
        return Finding.FAULTY
    faults = taken.reading.faults_of(chip)
    worst_level = worst(fault.seriousness for fault in faults if not fault.network)
    if not _is_tolerated(worst_level, in_use=chip in taken.in_use):
        return Finding.FAULTY
    if all(NETWORK_TOLERATED[fault.seriousness] for fault in faults if fault.network):
        return Finding.CLEAR
    return Finding.NETWORK_FAULTY


def _is_tolerated(level: Level, *, in_use: bool) -> bool:
    tolerance = TOLERANCE[level]
    return tolerance is Tolerance.ALWAYS or (tolerance is Tolerance.IN_USE and in_use)


def _reason(chip: int, reading: Reading) -> str:
    if chip not in reading.chips:
        return _why_unread(chip, reading) or VANISHED
    faults: tuple[ChipFault, ...] = reading.faults_of(chip)
    if not faults:
        return ""
    codes = ",".join(fault.code for fault in faults if fault.code)
    return f"{worst(fault.seriousness for fault in faults).value} {codes}".rstrip()
