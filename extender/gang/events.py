"""Events and effects of jobs of several pods, as values.

The jobs, the permit state machine and the planner use these classes. Any order of
events can therefore be written down and replayed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits for jobs of several pods, in seconds."""

    #: longest wait of a bind call; must be below the scheduler's `httpTimeout`
    gate_s: float = 20.0
    #: a plan without any bind call ends after this
    plan_s: float = 30.0
    #: an event is emitted for a job that is partly bound for so long
    partial_s: float = 60.0
    #: the remaining reservations of such a job end
    complete_s: float = 600.0
    #: whether its bound pods are evicted then, so that it starts again as a whole
    evicts_incomplete: bool = False
    #: how long plans of a job avoid a node that refused one of its pods
    avoid_s: float = 120.0
    #: after this wait, nodes are reserved for a job; and for how long
    reserve_after_s: float = 300.0
    reserve_for_s: float = 1800.0
    #: pause after the first failed plan; doubles with each failure
    first_wait_s: float = 2.0
    longest_wait_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A bind call that may have to wait."""

    uid: str
    node: str
    #: whether the caller still waits for the answer
    is_there: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanned:
    """A job was planned: {uid: node} of its pods without a node."""

    job: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """A job does not fit; the text says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindArrived:
    """A bind call for a pod and a node arrived."""

    uid: str
    node: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BindAbandoned:
    """The caller of a waiting bind closed its connection."""

    uid: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A pod has a node."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFailed:
    """A released bind ended without binding the pod, as far as is known."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Volcano allocated a pod to its planned node, and will bind it itself."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """Volcano took back a pod that it had allocated."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved:
    """A pod was deleted, failed, or is terminating."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNotOffered:
    """The scheduler does not offer a pod its planned node."""

    uid: str
    #: whether it offered a single node, as for a pod with a nominated node
    of_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBroken:
    """A plan can no longer be carried out; the text says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Event = (
    JobPlanned
    | PlanFailed
    | BindArrived
    | BindAbandoned
    | Bound
    | BindFailed
    | Allocated
    | Returned
    | MemberRemoved
    | NodeNotOffered
    | PlanBroken
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBinds:
    """Carry out the binds of these calls: {uid: call number}."""

    job: str
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseBind:
    """Refuse the bind of a call, with a sentence."""

    call: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreserve:
    """Release the chips that are reserved for these pods."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Emit an event about the job on these pods."""

    uids: tuple[str, ...]
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMembers:
    """Evict these pods, so that their incomplete job starts again as a whole."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeScheduler:
    """Make the scheduler try pods again."""


Effect = (
    ReleaseBinds | RefuseBind | Unreserve | EmitEvent | EvictMembers | WakeScheduler
)
