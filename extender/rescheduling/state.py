"""Jobs with fault pods and their moves: what `machine` knows, is told, and orders."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from extender.rescheduling.assessment import Assessment
from extender.rescheduling.moves import (
    Held,
    Limits,
    Move,
    MoveEffect,
    MoveEvent,
    MoveFacts,
)
from scheduler_core.wire.chip_faults import ChipFault

#: Chips of a resource of a node.
Place = tuple[str, str]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A pod with a fault that moves it, and the worst of such faults."""

    #: key of its job, or its own UID
    job: str
    fault: ChipFault
    #: mask of its chips with such faults
    chips: int
    #: how long the fault must last
    settle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPod:
    """A pod with a fault that moves it once it is due, or that goes with its job."""

    place: Place
    #: None: its job goes as a whole, and the place of its successor was lost
    fault: ChipFault | None
    #: mask; 0 without a fault
    chips: int
    due_s: float
    #: as `Assessment.news`, of the assessment that it was told
    news: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultJob:
    """A job with fault pods, and the last assessment of it."""

    #: {UID: pod}
    pods: Mapping[str, FaultPod] = field(default_factory=dict)
    #: None until the first pod is due
    assessment: Assessment | None = None
    #: {UID: mask of chips with faults} of the pods that it is about
    judged: Mapping[str, int] = field(default_factory=dict)
    #: whether something has changed since that assessment
    is_changed: bool = False
    #: earliest time of the next assessment, and how long it then waits at least
    again_s: float = 0.0
    pause_s: float = 0.0
    #: why its pods are not moved now, though they have places; "" if nothing
    waits: str = ""
    #: when a budget refused first to let its move begin; 0.0 if none has
    refused_s: float = 0.0

    def due(self, now_s: float) -> dict[str, int]:
        """Return {UID: mask of the chips with faults} of its pods that are due."""
        return {uid: p.chips for uid, p in self.pods.items() if p.due_s <= now_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All jobs with fault pods; empty while nothing is broken."""

    #: {key of a job, or UID of a pod that is a job by itself: job}
    jobs: Mapping[str, FaultJob] = field(default_factory=dict)
    #: {place: {UID of each of its fault pods: job}}
    places: Mapping[Place, Mapping[str, str]] = field(default_factory=dict)
    #: {key of a job, as above: its move, or what is remembered of it}
    moves: Mapping[str, Move] = field(default_factory=dict)
    #: what people hold
    held: Held = field(default_factory=Held)
    #: {node with faults for which pods are to be evicted: when these were due}
    wanting: Mapping[str, float] = field(default_factory=dict)
    #: number of nodes with chips
    npu_nodes: int = 0
    #: number of records that were ever written
    writes: int = 0

    def is_braked(self, limits: Limits) -> bool:
        """Whether faults on very many nodes keep all pods from being evicted."""
        return limits.is_braking and len(self.wanting) > self.most_wanting(limits)

    def most_wanting(self, limits: Limits) -> int:
        """Return on how many nodes faults may be while pods are evicted."""
        return max(limits.brake_nodes, int(limits.brake_share * self.npu_nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The event that the pods of a place were looked at."""

    place: Place
    #: {UID of each pod there that has a fault: sighting}
    pods: Mapping[str, Sighting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The event that something has changed by which an assessment may change."""

    job: str
    #: whether the last assessment waits for it, so that no pause holds
    is_awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The event that a job was judged, with these fault pods."""

    job: str
    faulty: Mapping[str, int]
    assessment: Assessment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The event that time has passed, so that pods may be due and pauses over."""

    #: number of nodes with chips
    npu_nodes: int = 0


Event = Seen | Changed | Judged | Ticked | MoveEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The effect that a job is judged; the event `Judged` answers it."""

    job: str
    #: {UID of a fault pod: mask of its chips with faults}
    faulty: Mapping[str, int]
    #: None: pods are told only
    facts: MoveFacts | None = None


Effect = Judge | MoveEffect
#: The state after an event, and the effects of that, in order.
After = tuple[State, tuple[Effect, ...]]


def with_job(state: State, key: str, job: FaultJob | None) -> State:
    """Return the state with another job with fault pods; without it for None."""
    return replace(state, jobs=put(state.jobs, key, job))


def with_move(state: State, key: str, move: Move | None) -> State:
    """Return the state with another move of a job; without one for None."""
    return replace(state, moves=put(state.moves, key, move))


def put(
    entries: Mapping[_Key, _Value], key: _Key, value: _Value | None
) -> Mapping[_Key, _Value]:
    """Return entries with another value; without the key for None."""
    changed = dict(entries)
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed
