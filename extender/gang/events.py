"""Events and effects of jobs of several pods, as immutable values.

The cache and the planner create the events. `permit.step` applies them to the jobs and
returns effects, which the planner carries out. Any order of events can therefore be
written down and replayed.
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
    """The client of one bind call, which may have to wait for the answer."""

    uid: str
    node: str
    #: whether the caller still waits for the answer
    is_there: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanned:
    """The event that a plan reserved chips for all unbound pods of a job.

    `places` is {UID of an unbound pod: planned node}.
    """

    job: str
    places: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """The event that no plan was possible for a job; `text` says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindArrived:
    """The event that a bind call for a pod and a node arrived."""

    uid: str
    node: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BindAbandoned:
    """The event that a bind call no longer waits, with or without an answer.

    The caller got its answer or closed its connection.
    """

    uid: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The event that a pod of a job has a node, or has succeeded."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFailed:
    """The event that a bind was attempted and is not known to have bound the pod.

    Before the attempt, the bind call was released: it no longer waited for other pods.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """The event that Volcano allocated a pod to its planned node.

    Volcano will bind the pod by itself: no bind call waits here.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The event that Volcano deallocated a pod that it had allocated to a node."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved:
    """The event that a pod was deleted, failed, is terminating, or left its job."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNotOffered:
    """The event that a filter call for a pod did not list the pod's planned node.

    Such a call lists only nodes that the caller considers for the pod.
    """

    uid: str
    #: whether it offered a single node, as for a pod with a nominated node
    of_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBroken:
    """The event that a job's plan can no longer be carried out; `text` says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The event that time has passed, so that time limits may have ended."""


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
    """The effect that bind calls of a job stop waiting and are carried out.

    `calls` is {UID of the pod: number of the call}.
    """

    job: str
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseBind:
    """The effect that a waiting bind call is refused; `text` says why."""

    call: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreserve:
    """The effect that the reservations of these pods end."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """The effect that a Kubernetes event about a job is emitted on these pods of it."""

    uids: tuple[str, ...]
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMembers:
    """The effect that these pods of an incomplete job are evicted.

    The job then starts again as a whole.
    """

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeScheduler:
    """The effect that kube-scheduler is made to try pending pods again."""


Effect = (
    ReleaseBinds | RefuseBind | Unreserve | EmitEvent | EvictMembers | WakeScheduler
)
