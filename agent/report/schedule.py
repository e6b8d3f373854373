"""Schedule of writes to the node's ConfigMap: a pure state machine.

The ConfigMap is `mindx-dl-deviceinfo-<node>`. This agent writes when it has a new node
report, when others have changed or deleted this agent's keys, and every `heartbeat_s`.
Writes are at least SPACING_S apart, or URGENT_SPACING_S if the condition of a chip has
changed. Keys of other programs are neither compared nor written.

The key `ManuallySeparateNPU` has the names of separated chips. People edit it, too. So
this agent writes the key only if the key is missing, or if nobody has changed it since
this agent read it.

Each agent writes its name into an annotation of the ConfigMap. If another name stands
there after a write of this agent, a second agent has started on the node. This agent
then stops writing, because two agents would overwrite each other for ever. It starts
again when the second agent has removed its name, or has not written for
SILENT_HEARTBEATS heartbeats, or when the ConfigMap is deleted.

A device plugin of another make writes no name. It is recognized by its report: the
checksum CheckCode is right, and the report is not older than this agent's. A person who
edits a report does not compute CheckCode. This agent stops writing after such a report,
and restores its keys after any other change. From the change after MOST_EDITS ones
within EDITS_WITHIN_S on, the pauses before that grow, up to a heartbeat. A controller
that changes the keys for ever is answered about once a minute. New reports do not wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from agent.report.content import MANUAL_KEY, NodeReport
from scheduler_core.wire.deviceinfo import DEVICE_INFO_KEY, LABELS, read_sealed_time

#: Annotation that names the agent process that wrote last.
WRITER = "ascend-affinity/writer"
#: Shortest time between two writes, as in MindCluster. Unit: seconds.
SPACING_S = 1.0
#: The same when a chip breaks or recovers: a scheduler would bind to a broken chip
#: meanwhile. Unit: seconds.
URGENT_SPACING_S = 0.2
#: Changes within EDITS_WITHIN_S that are restored without longer pauses.
MOST_EDITS = 4
#: Unit: seconds.
EDITS_WITHIN_S = 600.0
#: Stands for the name of a writer that writes none.
NAMELESS = "a program that gives no name"
#: Heartbeats that a rival has to miss until it counts as gone.
SILENT_HEARTBEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConfigMap:
    """One version of the node's ConfigMap, with the fields that the schedule reads."""

    data: Mapping[str, str]
    labels: Mapping[str, str]
    writer: str
    #: resourceVersion: a number that grows with every write in the cluster.
    version: int


@dataclass(frozen=True, slots=True)
class ReportChanged:
    """Event: the agent has a new node report, which the ConfigMap must show."""

    report: NodeReport


@dataclass(frozen=True, slots=True)
class ConfigMapSeen:
    """Event: the watch showed a version of the node's ConfigMap, whoever wrote it."""

    stored: StoredConfigMap


@dataclass(frozen=True, slots=True)
class ConfigMapDeleted:
    """Event: the watch showed that the node's ConfigMap was deleted."""


@dataclass(frozen=True, slots=True)
class WriteSucceeded:
    """Event: the API server accepted a `Write` of the node's ConfigMap."""

    report: NodeReport
    #: Keys of this agent, as written.
    data: Mapping[str, str]
    #: The ConfigMap after the write.
    stored: StoredConfigMap


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """Event: a write of the node's ConfigMap failed, or its result is unknown.

    The next write is due after `pause_s` at the earliest.
    """

    pause_s: float


@dataclass(frozen=True, slots=True)
class SilenceChanged:
    """Event: writes of `mindx-dl-deviceinfo-<node>` are now forbidden, or allowed.

    They are forbidden while another device plugin serves the same resource, and until
    this agent has checked for such a plugin.
    """

    is_silent: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: the time returned by `due_at` has come."""


Event = (
    ReportChanged
    | ConfigMapSeen
    | ConfigMapDeleted
    | WriteSucceeded
    | WriteFailed
    | SilenceChanged
    | Tick
)


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: write `report` into this agent's keys of the node's ConfigMap.

    The next event given to `step` must be `WriteSucceeded` or `WriteFailed`.
    """

    report: NodeReport
    #: Version over which the key of separated chips is written, too; the write fails if
    #: there is a newer one. 0: the key is not written.
    manual_at: int = 0


@dataclass(frozen=True, slots=True)
class Restoring:
    """Effect: log that others changed this agent's keys in the ConfigMap.

    A later `Write` restores the keys.
    """

    #: the changed keys, or "deleted"
    what: str


@dataclass(frozen=True, slots=True)
class RivalChanged:
    """Effect: announce that another program writes the ConfigMap, or has gone.

    Meanwhile this agent does not write it.
    """

    writer: str  #: "" when it has gone


Effect = Write | Restoring | RivalChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of the schedule: report to write, last written report, latest ConfigMap."""

    #: Name of this writer; unique per process.
    me: str
    heartbeat_s: float
    report: NodeReport | None = None
    #: The report of the last write that succeeded.
    published: NodeReport | None = None
    #: Keys of this agent as of that write.
    written: Mapping[str, str] | None = None
    written_version: int = 0
    written_at: float = -inf
    #: Latest version of the ConfigMap; None: there is none, or it was not read yet.
    stored: StoredConfigMap | None = None
    #: Loop time before which no write is due: the pause after a failure.
    not_before: float = -inf
    #: Whether the last write failed, so that its result is unknown.
    uncertain: bool = False
    rival: str = ""
    rival_seen_at: float = -inf
    #: Whether a rival plugin serves the node and writes its ConfigMap.
    is_silent: bool = False
    #: Loop times of changes of this agent's keys by others, the oldest first; one for
    #: each write of this agent.
    edits: tuple[float, ...] = ()


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Return the state after one event, and the effects to carry out.

    After the effect `Write`, the next event must be `WriteSucceeded` or `WriteFailed`.

    Args:
        state: Starts as `State(me=…, heartbeat_s=…)`.
        event: What happened.
        now: Loop time. Unit: seconds; never decreases.
    """
    state, effects = _apply(state, event, now)
    if state.rival and _silent_at(state) <= now:
        effects = (*effects, RivalChanged(""))
        state = replace(state, rival="")
    due = due_at(state)
    if due is None or due > now or state.report is None or state.rival:
        return state, effects
    return state, (*effects, Write(state.report, _manual_at(state)))


def due_at(state: State) -> float | None:
    """Return the loop time at which `step` must get a `Tick`; None if never.

    It is the time of the next write of `mindx-dl-deviceinfo-<node>`. But if another
    program (`state.rival`) writes it, it is the time at which that program counts as
    gone.
    """
    if state.rival:
        return _silent_at(state)
    if state.report is None or state.is_silent:
        return None
    return max(state.written_at + _pause_s(state), state.not_before)


def _pause_s(state: State) -> float:
    """Return the least seconds between two writes of the node's ConfigMap."""
    if _is_health_new(state):
        return URGENT_SPACING_S
    if state.report != state.published:
        return SPACING_S
    if state.stored is None or _changed_keys(state):
        excess = max(len(state.edits) - MOST_EDITS, 1)
        return min(SPACING_S * excess**2, state.heartbeat_s)
    return SPACING_S if _manual_at(state) else state.heartbeat_s


def _is_health_new(state: State) -> bool:
    """Whether a chip's condition differs between `state.report` and `state.published`.

    False if either is None.
    """
    if state.report is None or state.published is None:
        return False
    return _conditions(state.report) != _conditions(state.published)


def _conditions(report: NodeReport) -> list[tuple[tuple[int, ...], ...]]:
    return [
        (line.info.unhealthy, line.info.network_unhealthy, line.info.recovering)
        for line in report.lines
    ]


def _apply(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    match event:
        case ConfigMapSeen(stored):
            return _on_configmap(state, stored, now)
        case ConfigMapDeleted():
            return _on_deleted(state, now)
        case ReportChanged(report):
            state = replace(state, report=report)
        case WriteSucceeded():
            state = _on_written(state, event, now)
        case WriteFailed(pause_s):
            state = replace(state, not_before=now + pause_s, uncertain=True)
        case SilenceChanged(is_silent):
            state = replace(state, is_silent=is_silent)
        case Tick():
            pass
    return state, ()


def _on_written(state: State, event: WriteSucceeded, now: float) -> State:
    return replace(
        state,
        published=event.report,
        written=event.data,
        written_version=event.stored.version,
        written_at=now,
        stored=event.stored,
        not_before=-inf,
        uncertain=False,
    )


def _on_configmap(
    state: State, stored: StoredConfigMap, now: float
) -> tuple[State, tuple[Effect, ...]]:
    if stored.version <= state.written_version:
        return state, ()  # not newer than this agent's last write
    before = state.rival
    is_by_program = _is_by_program(state, stored)
    state = replace(state, stored=stored)
    if stored.writer not in ("", state.me) and state.written is not None:
        state = replace(state, rival=stored.writer, rival_seen_at=now)
        return state, () if stored.writer == before else (RivalChanged(stored.writer),)
    if is_by_program or before == NAMELESS:
        state = replace(state, rival=NAMELESS, rival_seen_at=now)
        return state, () if before == NAMELESS else (RivalChanged(NAMELESS),)
    if before:
        return replace(state, rival=""), (RivalChanged(""),)
    # while the result of a write is unknown, the change may be this agent's
    return _restore(state, "" if state.uncertain else _changed_keys(state), now)


def _restore(state: State, what: str, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Note the first change by others since this agent's last write.

    Nothing is noted if `what` is "", or while writes are forbidden.
    """
    is_noted = state.edits[-1:] > (state.written_at,)
    if not what or state.is_silent or is_noted:
        return state, ()
    recent = tuple(at for at in state.edits if at > now - EDITS_WITHIN_S)
    return replace(state, edits=(*recent, now)), (Restoring(what),)


def _is_by_program(state: State, stored: StoredConfigMap) -> bool:
    """Whether another program, not a person, wrote `DeviceInfoCfg` in `stored`.

    True if the text is new, is not older than this agent's last one, and has the right
    CheckCode. But False before this agent's first write, and while the result of its
    last write is unknown.

    Args:
        state: State whose `stored` is still the previous version of the ConfigMap.
        stored: New version of the ConfigMap, which this agent did not write.
    """
    if state.written is None or state.uncertain:
        return False
    stored_text = stored.data.get(DEVICE_INFO_KEY)
    written_text = state.written[DEVICE_INFO_KEY]
    before = state.stored and state.stored.data.get(DEVICE_INFO_KEY)
    if stored_text is None or stored_text in (written_text, before):
        return False
    their_time, our_time = read_sealed_time(stored_text), read_sealed_time(written_text)
    return their_time is not None and our_time is not None and their_time >= our_time


def _on_deleted(state: State, now: float) -> tuple[State, tuple[Effect, ...]]:
    rival, state = state.rival, replace(state, stored=None, rival="")
    if rival:
        return state, (RivalChanged(""),)
    return _restore(state, "deleted" if state.written is not None else "", now)


def _silent_at(state: State) -> float:
    return state.rival_seen_at + SILENT_HEARTBEATS * state.heartbeat_s


def _changed_keys(state: State) -> str:
    """Return which keys in `state.stored` differ from this agent's last write.

    The result is a text with commas: names of data keys, of labels, and of the
    annotation with the writer's name. `ManuallySeparateNPU` is named only if the
    ConfigMap lacks it. "" if there is no ConfigMap, or this agent has not written yet.
    """
    if state.written is None or state.stored is None:
        return ""
    wrong = [
        key for key, text in state.written.items() if state.stored.data.get(key) != text
    ]
    wrong += [
        key for key, text in LABELS.items() if state.stored.labels.get(key) != text
    ]
    wrong += [WRITER] if state.stored.writer != state.me else []
    wrong += [MANUAL_KEY] if MANUAL_KEY not in state.stored.data else []
    return ", ".join(wrong)


def _manual_at(state: State) -> int:
    """Return the resourceVersion to require for a write of `ManuallySeparateNPU`.

    0 if the key must not be written: its text equals the report's, or somebody changed
    it after the report was made. Also 0 without a ConfigMap or a report.
    """
    if state.stored is None or state.report is None:
        return 0
    text, separated = state.stored.data.get(MANUAL_KEY), state.report.separated
    # a text that was written since the report was made is in the next report
    is_known = text is None or text == separated.read
    return state.stored.version if is_known and text != separated.text else 0
