"""Events and effects of the state machine `permit`, as immutable values.

An event tells what happened to a job of several pods. The cache, the planner and the
Volcano verbs create events. `permit.step` applies an event to the jobs and returns
effects, which the parts of the extender carry out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from extender.gang.membership import AbsentMember


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits for jobs of several pods, in seconds."""

    #: longest wait of a bind call; must be below the scheduler's `httpTimeout`
    permit_s: float = 20.0
    #: a plan without any bind call ends after this
    plan_s: float = 30.0
    #: an event is emitted for a job that is partly bound for so long
    partial_s: float = 60.0
    #: the remaining reservations of such a job end
    complete_s: float = 600.0
    #: whether its bound pods are evicted then, so that it starts again as a whole
    evicts_incomplete: bool = False
    #: chips of pods that are made when others are ready are kept for so long
    followers_s: float = 600.0
    #: how long plans of a job avoid a node for pods of a kind to which it was refused
    avoid_s: float = 120.0
    #: chips are reserved in vain for a job at most this long in an hour
    vain_s: float = 300.0
    #: after this wait, nodes are reserved for a job; and for how long
    reserve_after_s: float = 300.0
    reserve_for_s: float = 1800.0
    #: pause after the first failed plan; doubles with each failure
    first_wait_s: float = 2.0
    longest_wait_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client that waits for the answer to a bind call.

    The call is for the pod `uid` and the node `node`.
    """

    uid: str
    node: str
    #: whether the caller still waits for the answer
    is_there: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanned:
    """The event that a plan reserved chips for the unbound pods of a job.

    Of an elastic job it has those that fit.

    `places` is {UID of an unbound pod: planned node}, and `followers` is {member whose
    pod is made once others are ready: planned node}.
    """

    job: str
    places: Mapping[str, str]
    followers: Mapping[AbsentMember, str] = field(default_factory=dict)
    #: {kind: nodes that the scheduler had offered to it}
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFailed:
    """The event that no plan was possible for a job; `text` says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindArrived:
    """The event that a bind call for the pod `uid` and the node `node` arrived."""

    uid: str
    node: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BindAbandoned:
    """The event that a bind call waits no more: it is answered, or its client left."""

    uid: str
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The event that a pod of a job is bound to a node, or ended with success."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BindFailed:
    """The event that a bind failed, or has no known outcome.

    A bind call that was refused while it waited for its job does not cause this event.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """The event that Volcano allocated a pod to its planned node; the bind comes later.

    Volcano itself holds back the binds of a job. So the extender does not hold them.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The event that Volcano withdrew its allocation of a pod to a node."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved:
    """The event that a pod left its job, or can no longer be bound.

    The pod was deleted, failed, changed its job, or is terminating before it was bound.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerArrived:
    """The event that the pod of a planned member without a pod was created.

    The chips that were kept for the member are kept for the pod `uid` now.
    """

    uid: str
    member: AbsentMember


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNotOffered:
    """The event that the scheduler did not offer the planned node of a pod to the pod.

    A filter call of kube-scheduler lists the nodes that it offers. Volcano offers nodes
    by predicate calls, each for one node.
    """

    uid: str
    #: whether it offered a single node, as for a pod with a nominated node; if it goes
    #: on, the pod does not come in time
    of_one: bool = False
    #: nodes that it did offer
    offered: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccepted:
    """The event that filter has let a pod go to its planned node.

    The scheduler counts the pod there from now on.
    """

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenInVolcano:
    """The event that Volcano schedules a job, and itself holds back its binds."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBroken:
    """The event that a job's plan cannot be carried out any more; `text` says why."""

    job: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The event that time has passed: `permit.step` then checks all time limits."""


JobEvent = JobPlanned | PlanFailed | PlanBroken | SeenInVolcano
VolcanoEvent = Allocated | Returned
OfferEvent = NodeNotOffered | NodeAccepted
PodEvent = BindAbandoned | Bound | BindFailed | MemberRemoved

Event = (
    JobEvent
    | VolcanoEvent
    | OfferEvent
    | PodEvent
    | BindArrived
    | FollowerArrived
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBinds:
    """The effect that bind calls of a job stop waiting and are carried out.

    If one of their pods cannot get its reserved chips any more, `BindPermits` refuses
    all these calls. `calls` is {UID of a pod: number of its call in `WaitingBinds`}.
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
    """The effect that the chips reserved for pods become free.

    `kept_for` has the UIDs of these pods, and the members that have no pod yet.
    """

    kept_for: tuple[str | AbsentMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """The effect that a Kubernetes event is emitted on each of the pods `uids`."""

    uids: tuple[str, ...]
    reason: str
    text: str
    #: whether something is wrong
    is_warning: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMembers:
    """The effect that the bound pods `uids` of an incomplete job are evicted.

    Their controller can then create them again, and the whole job is planned again.
    """

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSize:
    """The effect that the size of a job is read, because its first pod has come.

    Or one has come that is more than the size says.
    """

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeScheduler:
    """The effect that kube-scheduler is made to try pending pods again."""


Effect = (
    ReleaseBinds
    | RefuseBind
    | Unreserve
    | EmitEvent
    | EvictMembers
    | ReadSize
    | WakeScheduler
)
