"""What the faults of a chip mean: a pure state machine over readings.

A chip is in one of four conditions. A reading gives each chip a finding, the
table says which condition follows, and each condition has a way back:

    HEALTHY            in service
    UNHEALTHY          a fault takes it out of service, or it no longer answers
    NETWORK_UNHEALTHY  in service, but its parameter-plane network has a fault
    RECOVERING         its faults are gone, but not yet for long enough

The hold-off keeps a flapping fault from offering a chip again and again. A
network fault clears without RECOVERING: the chip was in service all along, and
taking it out in order to recover would be the only harm done.

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
    """How a chip is."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    NETWORK_UNHEALTHY = "network-unhealthy"
    RECOVERING = "recovering"


class Finding(Enum):
    """What one reading says about one chip.

    STEADY: the same was found at each reading for the whole hold-off.
    """

    FAULTY = "faulty"
    NETWORK_FAULTY = "network faulty"
    NETWORK_FAULTY_STEADY = "network faulty for the hold-off"
    CLEAR = "clear"
    CLEAR_STEADY = "clear for the hold-off"


class Tolerance(Enum):
    """Whether a chip with a fault of some level stays in service."""

    ALWAYS = "always"
    IN_USE = "while a pod uses it"
    NEVER = "never"


#: Faults of the chip itself. FreeRestartNPU is tolerated by the reference only
#: with its grace tolerance, a part of hot reset, which we do not have.
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

#: Network faults: whether the network counts as healthy. The restart levels make
#: no sense for a link and count as NotHandleFault.
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
    columns = (
        Finding.FAULTY,
        Finding.NETWORK_FAULTY,
        Finding.NETWORK_FAULTY_STEADY,
        Finding.CLEAR,
        Finding.CLEAR_STEADY,
    )
    rows = {
        healthy: (unhealthy, network, network, healthy, healthy),
        unhealthy: (unhealthy, recovering, recovering, recovering, recovering),
        network: (unhealthy, network, network, network, healthy),
        recovering: (unhealthy, recovering, network, recovering, healthy),
    }
    return {
        (condition, finding): after
        for condition, row in rows.items()
        for finding, after in zip(columns, row, strict=True)
    }


#: {(condition, finding): condition that follows}. Every pair is in it.
TRANSITIONS: Mapping[tuple[Condition, Finding], Condition] = MappingProxyType(_table())

#: Reason of a chip that the machine should have and that does not answer.
VANISHED = "vanished"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipHealth:
    """One chip: its condition, and what was last found."""

    condition: Condition = Condition.HEALTHY
    finding: Finding = Finding.CLEAR
    #: Since when the finding is the same, steady or not. Unit: seconds, loop clock.
    found_since: float = -inf
    #: Worst fault and its codes, "vanished", or "" without any.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """All chips of the product; none is ever forgotten."""

    #: {physical id: how the chip is}
    chips: Mapping[int, ChipHealth] = field(default_factory=dict)

    def having(self, *conditions: Condition) -> tuple[int, ...]:
        """The chips in any of these conditions, ascending."""
        return tuple(
            chip
            for chip, health in sorted(self.chips.items())
            if health.condition in conditions
        )

    @property
    def in_service(self) -> tuple[int, ...]:
        """The chips that the kubelet may give out, ascending."""
        return self.having(Condition.HEALTHY, Condition.NETWORK_UNHEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One chip changed its condition."""

    chip: int
    before: Condition
    after: Condition
    #: What caused it: level and codes, "vanished", or "faults cleared".
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One event: what was read, and what decides how to take it."""

    reading: Reading
    #: Chips that a pod uses now: some faults are tolerated on those.
    in_use: frozenset[int] = frozenset()
    #: The hold-off. Unit: seconds, 0 or more.
    recover_s: float = 1.0


def step(
    state: Health, look: Look, now: float
) -> tuple[Health, tuple[Transition, ...]]:
    """What the chips are after one more look, and which of them changed.

    A chip that is seen for the first time counts as healthy until this look; one that
    the product has and nobody has ever seen is as bad as one that has vanished.

    Args:
        state: How the chips were. Starts as `Health()`.
        look: The reading, with chips in use and hold-off.
        now: Loop time of the reading. Unit: seconds; never decreases.

    Returns:
        The new state and the transitions, ordered by chip.
    """
    chips: dict[int, ChipHealth] = {}
    transitions: list[Transition] = []
    all_chips = chip_sets.ids_of(look.reading.product.all_chips)
    for chip in sorted({*all_chips, *state.chips, *look.reading.chips}):
        before = state.chips.get(chip, ChipHealth())
        after = _chip_step(before, chip, look, now)
        chips[chip] = after
        if after.condition is not before.condition:
            transitions.append(
                Transition(
                    chip=chip,
                    before=before.condition,
                    after=after.condition,
                    reason=_cause(after),
                )
            )
    return Health(chips=MappingProxyType(chips)), tuple(transitions)


_STEADY = MappingProxyType(
    {
        Finding.CLEAR: Finding.CLEAR_STEADY,
        Finding.NETWORK_FAULTY: Finding.NETWORK_FAULTY_STEADY,
    }
)


def is_settled(state: Health, reading: Reading) -> bool:
    """Whether nothing would come of the same reading later, whatever pods do.

    Args:
        state: What has come of it now.
        reading: That was looked at.
    """
    is_steady = all(
        TRANSITIONS[health.condition, finding] is health.condition
        for health in state.chips.values()
        for finding in (health.finding, _STEADY.get(health.finding, health.finding))
    )
    return is_steady and not any(
        TOLERANCE[fault.seriousness] is Tolerance.IN_USE for fault in reading.faults
    )


def _chip_step(before: ChipHealth, chip: int, look: Look, now: float) -> ChipHealth:
    finding = _finding(chip, look)
    since = before.found_since if finding is before.finding else now
    held_off = now - since >= look.recover_s
    event = _STEADY.get(finding, finding) if held_off else finding
    return ChipHealth(
        condition=TRANSITIONS[before.condition, event],
        finding=finding,
        found_since=since,
        reason=_reason(chip, look.reading),
    )


def _cause(after: ChipHealth) -> str:
    # A fault that is tolerated may remain; it is not why the chip came back.
    return "faults cleared" if after.finding is Finding.CLEAR else after.reason


def _finding(chip: int, look: Look) -> Finding:
    if chip not in look.reading.chips:
        return Finding.FAULTY
    faults = look.reading.faults_of(chip)
    own = worst(fault.seriousness for fault in faults if not fault.network)
    if not _is_tolerated(own, in_use=chip in look.in_use):
        return Finding.FAULTY
    if all(NETWORK_TOLERATED[fault.seriousness] for fault in faults if fault.network):
        return Finding.CLEAR
    return Finding.NETWORK_FAULTY


def _is_tolerated(level: Level, *, in_use: bool) -> bool:
    tolerance = TOLERANCE[level]
    return tolerance is Tolerance.ALWAYS or (tolerance is Tolerance.IN_USE and in_use)


def _reason(chip: int, reading: Reading) -> str:
    if chip not in reading.chips:
        return VANISHED
    faults: tuple[ChipFault, ...] = reading.faults_of(chip)
    if not faults:
        return ""
    codes = ",".join(fault.code for fault in faults if fault.code)
    return f"{worst(fault.seriousness for fault in faults).value} {codes}".rstrip()
