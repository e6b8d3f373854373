"""When the node's ConfigMap is written, and when it is not: a pure state machine.

It is written when there is something new to say (at once, and at most once a
second, but sooner when a chip breaks), when it is not what we wrote (edited,
deleted), and as a heartbeat. Only our own keys are compared and written; all others
are an administrator's. The names of separated chips are both's: they are written only
over a text that has been read.

Each write carries the name of its writer. Another name that appears after a write
of ours is a second agent for the same node. The younger one is left alone: two
agents that correct each other would leave readers with neither's truth. We write
again when it has been silent for three heartbeats, or has taken its name away.

A program that gives no name (another make of device plugin) is told from a hand by
what it writes: a CheckCode that is right, on a report that is not older than ours.
Nobody computes that by hand. And whoever changes our keys five times within ten
minutes is a program too, whatever it writes. Every other change is restored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from agent.report.content import MANUAL_KEY, Picture
from scheduler_core.wire.deviceinfo import DEVICE_INFO_KEY, LABELS, sealed_at

#: Annotation that names the agent process that wrote last.
WRITER = "ascend-affinity/writer"
#: At most one write per second, as the reference. Unit: seconds.
SPACING_S = 1.0
#: But a chip that breaks or recovers does not wait behind a write about occupancy:
#: a scheduler would bind to it meanwhile. Unit: seconds.
URGENT_SPACING_S = 0.2
#: So many changes by others within so long are no hand's.
MOST_EDITS = 4
EDITS_WITHIN_S = 600.0
#: Stands for the name of a writer that gives none.
NAMELESS = "a program that gives no name"
#: A rival that misses so many heartbeats is gone.
SILENT_HEARTBEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The ConfigMap as the API server has it at some version."""

    data: Mapping[str, str]
    labels: Mapping[str, str]
    writer: str
    #: resourceVersion: a number that grows with every write in the cluster.
    version: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """Event: this is to be published from now on."""

    picture: Picture


@dataclass(frozen=True, slots=True)
class Watched:
    """Event: the ConfigMap was created or changed, by whomever."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class Vanished:
    """Event: there is no ConfigMap any more."""


@dataclass(frozen=True, slots=True)
class Landed:
    """Event: a write succeeded."""

    picture: Picture
    #: Our keys, as written.
    data: Mapping[str, str]
    #: What the API server has since.
    seen: Seen


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: a write failed, or its outcome is unknown."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class Hushed:
    """Event: from now on say nothing, or speak again: the node is another's or ours."""

    is_silent: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: nothing but time has passed."""


Event = Drawn | Watched | Vanished | Landed | Failed | Hushed | Tick


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: set our keys; answered by `Landed` or `Failed`."""

    picture: Picture
    #: Version at which the separated chips are to be named anew, unless somebody has
    #: written since; 0 leaves their key alone.
    manual_at: int = 0


@dataclass(frozen=True, slots=True)
class Restoring:
    """Effect: say that somebody changed what is ours."""

    what: str


@dataclass(frozen=True, slots=True)
class RivalAppeared:
    """Effect: say that another agent writes for this node, and that we yield."""

    writer: str


@dataclass(frozen=True, slots=True)
class RivalVanished:
    """Effect: say that we are alone again."""

    writer: str


Effect = Write | Restoring | RivalAppeared | RivalVanished


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is to be said, what was said, and what stands there now."""

    #: Our name; unique per process.
    me: str
    heartbeat_s: float
    picture: Picture | None = None
    #: The picture of the last write that succeeded.
    published: Picture | None = None
    #: Our keys as of that write. Source of truth: the API server; repaired by it.
    written: Mapping[str, str] | None = None
    written_version: int = 0
    written_at: float = -inf
    #: The latest that the API server showed; None: there is no ConfigMap, or we
    #: have not looked yet.
    seen: Seen | None = None
    #: No write before this moment: the pause after a failure.
    not_before: float = -inf
    #: Whether the last write failed, so that its outcome is unknown.
    uncertain: bool = False
    rival: str = ""
    rival_seen_at: float = -inf
    #: Whether another plugin serves the node, so that it is not ours to report.
    is_silent: bool = False
    #: When others have changed our keys, the oldest first. Loop seconds.
    edits: tuple[float, ...] = ()


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """What follows from one event.

    A `Write` is answered by `Landed` or `Failed` before any other event.

    Args:
        state: Starts as `State(me=…, heartbeat_s=…)`.
        event: What happened.
        now: Loop time. Unit: seconds; never decreases.
    """
    state, effects = _after(state, event, now)
    if state.rival and _silent_at(state) <= now:
        effects = (*effects, RivalVanished(state.rival))
        state = replace(state, rival="")
    due = due_at(state)
    if due is None or due > now or state.picture is None or state.rival:
        return state, effects
    return state, (*effects, Write(state.picture, _manual_at(state)))


def due_at(state: State) -> float | None:
    """When something is to be done if nothing happens before; None: never."""
    if state.rival:
        return _silent_at(state)
    if state.picture is None or state.is_silent:
        return None
    return max(state.written_at + _pause_s(state), state.not_before)


def _pause_s(state: State) -> float:
    """How long after the last write the next one is due."""
    if not _is_outdated(state):
        return state.heartbeat_s
    return URGENT_SPACING_S if _is_health_new(state) else SPACING_S


def _is_health_new(state: State) -> bool:
    """Whether a chip has come into another condition since the last write."""
    if state.picture is None or state.published is None:
        return False
    return _conditions(state.picture) != _conditions(state.published)


def _conditions(picture: Picture) -> list[tuple[tuple[int, ...], ...]]:
    return [
        (line.info.unhealthy, line.info.network_unhealthy, line.info.recovering)
        for line in picture.lines
    ]


def _after(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    match event:
        case Watched(seen):
            return _watched(state, seen, now)
        case Vanished():
            return _vanished(state)
        case Drawn(picture):
            state = replace(state, picture=picture)
        case Landed():
            state = _landed(state, event, now)
        case Failed(pause_s):
            state = replace(state, not_before=now + pause_s, uncertain=True)
        case Hushed(is_silent):
            state = replace(state, is_silent=is_silent)
        case Tick():
            pass
    return state, ()


def _landed(state: State, event: Landed, now: float) -> State:
    return replace(
        state,
        published=event.picture,
        written=event.data,
        written_version=event.seen.version,
        written_at=now,
        seen=event.seen,
        not_before=-inf,
        uncertain=False,
    )


def _watched(state: State, seen: Seen, now: float) -> tuple[State, tuple[Effect, ...]]:
    if seen.version <= state.written_version:
        return state, ()  # older than our own write: a predecessor's, or that write
    before = state.rival
    is_programs = _is_a_programs(state, seen)
    state = replace(state, seen=seen)
    if seen.writer not in ("", state.me) and state.written is not None:
        state = replace(state, rival=seen.writer, rival_seen_at=now)
        return state, () if seen.writer == before else (RivalAppeared(seen.writer),)
    if is_programs or before == NAMELESS:
        state = replace(state, rival=NAMELESS, rival_seen_at=now, edits=())
        return state, () if before == NAMELESS else (RivalAppeared(NAMELESS),)
    if before:
        return replace(state, rival=""), (RivalVanished(before),)
    return _edited(state, now)


def _edited(state: State, now: float) -> tuple[State, tuple[Effect, ...]]:
    """Restore what a hand has changed; yield to one that never rests."""
    what = "" if state.uncertain else _changed(state)
    if not what:
        return state, ()
    recent = tuple(at for at in state.edits if at > now - EDITS_WITHIN_S)
    state = replace(state, edits=(*recent, now))
    if len(state.edits) > MOST_EDITS:
        state = replace(state, rival=NAMELESS, rival_seen_at=now, edits=())
        return state, (RivalAppeared(NAMELESS),)
    return state, (Restoring(what),)


def _is_a_programs(state: State, seen: Seen) -> bool:
    """Tell whether a new report, not ours, was written by a program.

    Args:
        state: Before it was seen.
        seen: The ConfigMap with it.
    """
    if state.written is None or state.uncertain:
        return False
    theirs, ours = seen.data.get(DEVICE_INFO_KEY), state.written[DEVICE_INFO_KEY]
    before = state.seen.data.get(DEVICE_INFO_KEY) if state.seen is not None else None
    if theirs is None or theirs in (ours, before):
        return False
    moment, latest = sealed_at(theirs), sealed_at(ours)
    return moment is not None and latest is not None and moment >= latest


def _vanished(state: State) -> tuple[State, tuple[Effect, ...]]:
    effects: tuple[Effect, ...] = ()
    if state.rival:
        effects = (RivalVanished(state.rival),)
    elif state.written is not None:
        effects = (Restoring("deleted"),)
    return replace(state, seen=None, rival=""), effects


def _silent_at(state: State) -> float:
    return state.rival_seen_at + SILENT_HEARTBEATS * state.heartbeat_s


def _is_outdated(state: State) -> bool:
    return (
        state.picture != state.published
        or state.seen is None
        or bool(_changed(state))
        or bool(_manual_at(state))
    )


def _changed(state: State) -> str:
    """What of ours is not as we wrote it; "" when all is, or we never wrote."""
    if state.written is None or state.seen is None:
        return ""
    wrong = [
        key for key, text in state.written.items() if state.seen.data.get(key) != text
    ]
    wrong += [key for key, text in LABELS.items() if state.seen.labels.get(key) != text]
    wrong += [WRITER] if state.seen.writer != state.me else []
    wrong += [MANUAL_KEY] if MANUAL_KEY not in state.seen.data else []
    return ", ".join(wrong)


def _manual_at(state: State) -> int:
    if state.seen is None or state.picture is None:
        return 0
    stands, wished = state.seen.data.get(MANUAL_KEY), state.picture.separated
    # what was written since the picture was drawn is in the next one
    is_known = stands is None or stands == wished.read
    return state.seen.version if is_known and stands != wished.text else 0
