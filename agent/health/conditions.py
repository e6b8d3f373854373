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
its finding has been the same for the hold-off, and by a reading that has read it: what
is said of a slow chip between two looks shows nothing new. So a chip with a flapping
fault is not offered again and again. From NETWORK_UNHEALTHY to HEALTHY, the hold-off
counts too.
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
    at least `ReadingTaken.recover_s` seconds, the last one by reading the chip. The
    order is that of the columns of `TRANSITIONS`.
    """

    FAULTY = "faulty"
    NETWORK_FAULTY = "network faulty"
    NETWORK_FAULTY_STEADY = "network faulty for the hold-off"
    CLEAR = "clear"
    CLEAR_STEADY = "clear for the hold-off"


#: Levels at which a chip's own fault leaves the chip in service. The reference
#: tolerates FreeRestartNPU only with its grace tolerance, a part of hot reset, which
#: the agent does not have.
_TOLERATED = frozenset({Level.NORMAL, Level.NOT_HANDLED, Level.SUB_HEALTH})
#: Level at which a fault leaves its chip in service while a pod uses the chip.
_TOLERATED_IN_USE = Level.PRE_SEPARATE
#: Levels of a network fault at which the network counts as unhealthy. The restart
#: levels make no sense for a link and count as NotHandleFault.
_BREAKS_NETWORK = frozenset(
    {
        Level.SUB_HEALTH,
        Level.PRE_SEPARATE,
        Level.SEPARATE,
        Level.MANUALLY_SEPARATE,
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
            # a tolerated fault may remain; it is not why the chip came back
            is_clear = new_health.finding is Finding.CLEAR
            transitions.append(
                Transition(
                    chip=chip,
                    before=old_health.condition,
                    after=new_health.condition,
                    reason="faults cleared" if is_clear else new_health.reason,
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

    Whichever chips pods use then: some levels take a chip out of service as soon as no
    pod uses it.

    Args:
        state: Health after the reading was applied.
        reading: The reading that was applied last.
    """
    uses = frozenset[int](), frozenset(state.chips)
    looks = [ReadingTaken(reading=reading, in_use=used) for used in uses]
    return not any(step(state, look, inf)[1] for look in looks)


def _chip_step(
    old_health: ChipHealth, chip: int, taken: ReadingTaken, now: float
) -> ChipHealth:
    unread = taken.reading.why_unread(chip)
    unread_since = None
    if unread:
        unread_since = (
            now if old_health.unread_since is None else old_health.unread_since
        )
    is_blind = unread_since is not None and now - unread_since >= UNREAD_S
    finding = Finding.FAULTY if is_blind else _finding(chip, taken)
    since = old_health.found_since if finding is old_health.finding else now
    held_off = now - since >= taken.recover_s and chip in taken.reading.chips_read
    effective_finding = _STEADY.get(finding, finding) if held_off else finding
    return ChipHealth(
        condition=TRANSITIONS[old_health.condition, effective_finding],
        finding=finding,
        found_since=since,
        unread_since=unread_since,
        reason=unread if is_blind else _reason(chip, taken.reading),
    )


def _finding(chip: int, taken: ReadingTaken) -> Finding:
    if chip not in taken.reading.chips:
        return Finding.FAULTY
    faults = taken.reading.faults_of(chip)
    worst_level = worst(fault.seriousness for fault in faults if not fault.network)
    is_used = worst_level is _TOLERATED_IN_USE and chip in taken.in_use
    if worst_level not in _TOLERATED and not is_used:
        return Finding.FAULTY
    if any(f.network and f.seriousness in _BREAKS_NETWORK for f in faults):
        return Finding.NETWORK_FAULTY
    return Finding.CLEAR


def _reason(chip: int, reading: Reading) -> str:
    if chip not in reading.chips:
        return reading.why_unread(chip) or VANISHED
    faults: tuple[ChipFault, ...] = reading.faults_of(chip)
    if not faults:
        return ""
    codes = ",".join(fault.code for fault in faults if fault.code)
    return f"{worst(fault.seriousness for fault in faults).value} {codes}".rstrip()
