"""Rules of one fault code on one chip: when they raise its level, and for how long.

An occurrence is what a frequency rule counts: an arrival of the code. If the code has a
duration rule too, only its upgrade by duration is an occurrence, and it lasts as long
as that upgrade. During an upgrade by frequency, no occurrence is counted, and none is
left to count afterwards.

Source: MindCluster's device plugin, `pkg/common/fault_code.go` (at 22bb3d98).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from agent.devices.reading import Level
from agent.health.code_history import CodeHistory, Presence, extend
from agent.health.rules import Duration, Frequency

#: Longest time between two looks at a chip with faults. Unit: seconds.
LOOK_EACH_S = 1.0


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


#: Kinds of upgrades that rules make; an upgrade by duration can lead to the other.
KINDS = (Kind.DURATION, Kind.FREQUENCY)


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
class CodeRead:
    """One fault code on one chip in a reading, with its rules."""

    chip: int
    #: Canonical code.
    code: str
    #: None if the chip does not have the code. If the chip's codes were not read, that
    #: of an earlier reading or an event.
    presence: Presence | None
    #: Whether the chip's codes were read.
    is_known: bool
    frequency: Frequency | None
    duration: Duration | None
    #: Loop time of the reading. Unit: seconds.
    now: float
    #: Time of the reading. Unit: Unix milliseconds.
    now_ms: int

    def upgrade(self, kind: Kind, level: Level) -> Upgrade:
        """Return the upgrade that starts with this reading."""
        return Upgrade(
            chip=self.chip, code=self.code, level=level, kind=kind, at_ms=self.now_ms
        )


def step_code(
    history: CodeHistory, old_upgrades: Mapping[Kind, Upgrade], read: CodeRead
) -> tuple[CodeHistory, Mapping[Kind, Upgrade]]:
    """Return history and upgrades of one fault code on one chip after a reading.

    Args:
        history: History before the reading.
        old_upgrades: Upgrades of the code on the chip before the reading.
        read: The reading.
    """
    upgrades: dict[Kind, Upgrade] = {}
    by_duration = old_upgrades.get(Kind.DURATION)
    if by_duration and _is_lasting(history, read):
        upgrades[Kind.DURATION] = by_duration
    limit = read.duration
    if by_duration is None and limit and _is_overdue(history, limit, read):
        upgrades[Kind.DURATION] = read.upgrade(Kind.DURATION, limit.level)
    history = _note_occurrences(
        history,
        read,
        was_overdue=by_duration is not None,
        is_overdue=Kind.DURATION in upgrades,
    )
    by_frequency = old_upgrades.get(Kind.FREQUENCY)
    if by_frequency and _is_frequent(history, by_frequency, read):
        upgrades[Kind.FREQUENCY] = by_frequency
    rule = read.frequency
    if by_frequency is None and rule and len(history.occurrences_s) >= rule.times:
        upgrades[Kind.FREQUENCY] = read.upgrade(Kind.FREQUENCY, rule.level)
    if by_frequency or Kind.FREQUENCY in upgrades:
        history = replace(history, occurrences_s=())
    return history, upgrades


def _is_overdue(history: CodeHistory, rule: Duration, read: CodeRead) -> bool:
    """Whether a code has been present, until this reading, for longer than allowed.

    If this reading does not show it, it was there until the look after the last one
    that did, at most: the time in which nothing was read is no time of a fault.

    Args:
        history: History of the code before the reading.
        rule: Says how long it may be present.
        read: The reading.
    """
    old, new = history.presence, read.presence
    if old is None:
        return False
    is_same = read.is_known and new is not None and new.since_ms == old.since_ms
    until_s = read.now if is_same else min(read.now, history.shown_s + LOOK_EACH_S)
    return until_s - history.since > rule.timeout_s


def _is_lasting(history: CodeHistory, read: CodeRead) -> bool:
    """Whether an upgrade by duration lasts.

    Args:
        history: History of the code before the reading.
        read: The reading.
    """
    if history.is_present or not read.is_known:
        return True
    gone_s = read.now - history.since
    return read.duration is not None and gone_s <= read.duration.recover_s


def _note_occurrences(
    history: CodeHistory, read: CodeRead, *, was_overdue: bool, is_overdue: bool
) -> CodeHistory:
    """Return the history of a code after a reading, with the newest occurrences.

    Args:
        history: History before the reading.
        read: The reading.
        was_overdue: Whether the code had an upgrade by duration before the reading.
        is_overdue: Whether it has one now.
    """
    now, since, count = read.now, history.since, 0
    if read.is_known or read.presence is not None:
        history, count = extend(history, read.presence, now, is_read=read.is_known)
    is_lasting, quiet_s = history.is_present, now
    if read.duration is not None:
        count, is_lasting = int(is_overdue and not was_overdue), is_overdue
        quiet_s = since + read.duration.recover_s if was_overdue else now
    if is_lasting:
        history = replace(history, quiet_s=None)
    elif history.quiet_s is None:
        history = replace(history, quiet_s=quiet_s)
    if read.frequency is None:
        return replace(history, occurrences_s=())
    begin_s = now - read.frequency.window_s
    occurrences_s = (*history.occurrences_s, *[now] * count)
    return replace(
        history, occurrences_s=tuple(at for at in occurrences_s if at >= begin_s)
    )


def _is_frequent(history: CodeHistory, upgrade: Upgrade, read: CodeRead) -> bool:
    """Whether an upgrade by frequency lasts.

    Args:
        history: History of the code after the reading.
        upgrade: The upgrade.
        read: The reading.
    """
    if history.quiet_s is None or not read.is_known:
        return True
    if read.frequency is None:  # its rule was removed, and no person freed the chip
        return upgrade.level is Level.MANUALLY_SEPARATE
    release_s = read.frequency.release_s
    return not release_s or read.now - history.quiet_s <= release_s
