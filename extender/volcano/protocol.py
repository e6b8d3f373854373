"""Requests and answers of Volcano's `extender` plugin, and their JSON.

Tasks, nodes and jobs in the requests are Go structs without JSON tags. So their keys
are Go's field names (`NodeName`). A request for predicate carries a whole node with all
its tasks, but of the node only the name is decoded.

Source: volcano-sh/volcano `pkg/scheduler/plugins/extender/` and `pkg/scheduler/api/`,
v1.13 to v1.16.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import partial

import msgspec

from extender.http.body import BodyError, decode_body
from kube import objects

_NO_POD = msgspec.Raw(b"{}")


class Status(IntFlag):
    """Bits of Volcano's TaskStatus: the state of a task within a session."""

    PENDING = 1
    ALLOCATED = 2
    PIPELINED = 4
    BINDING = 8
    BOUND = 16
    RUNNING = 32
    RELEASING = 64
    SUCCEEDED = 128
    FAILED = 256
    UNKNOWN = 512


#: Statuses of tasks that are bound or being bound: deallocateFunc frees nothing.
PLACED = Status.BINDING | Status.BOUND | Status.RUNNING | Status.RELEASING


class Code(IntEnum):
    """Result codes in the answer to predicate."""

    FITS = 0
    ERROR = 1
    #: eviction of other pods may help
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3


class Vote(IntEnum):
    """The extender's answer when Volcano asks to enqueue a job or to evict pods."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as Volcano sends it, with its status and node in Volcano's session.

    `pod` has the undecoded JSON of the Pod object; `pod_of` decodes it.
    """

    uid: str = msgspec.field(name="UID")
    namespace: str = msgspec.field(name="Namespace", default="")
    name: str = msgspec.field(name="Name", default="")
    status: int = msgspec.field(name="Status", default=0)
    #: node where the task runs or was just placed; "" if none
    node: str = msgspec.field(name="NodeName", default="")
    priority: int = msgspec.field(name="Priority", default=0)
    pod: msgspec.Raw = msgspec.field(name="Pod", default=_NO_POD)


class _Node(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="Name")


class PredicateArgs(msgspec.Struct, frozen=True):
    """Body of predicate, which asks whether a task fits a node."""

    task: Task
    node: _Node


class PrioritizeArgs(msgspec.Struct, frozen=True):
    """Body of prioritize: a task, and the nodes to score for it."""

    task: Task
    nodes: list[_Node] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the nodes to score, in the order of the request."""
        return [node.name for node in self.nodes or ()]


class _Anything(msgspec.Struct, frozen=True):
    """A JSON object of which nothing is decoded."""


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_resources: dict[str, objects.Quantity] | None = None


class _GroupMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _GroupStatus(msgspec.Struct, frozen=True):
    conditions: list[dict[str, object]] | None = None


class _Group(msgspec.Struct, frozen=True):
    metadata: _GroupMeta = _GroupMeta()
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus = _GroupStatus()


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup as Volcano sends it, with its tasks by UID."""

    name: str = msgspec.field(name="Name", default="")
    namespace: str = msgspec.field(name="Namespace", default="")
    group_uid: str = msgspec.field(name="PgUID", default="")
    tasks: dict[str, _Anything] | None = msgspec.field(name="Tasks", default=None)
    group: _Group | None = msgspec.field(name="PodGroup", default=None)

    @property
    def least(self) -> Mapping[str, objects.Quantity]:
        """The `minResources` of the PodGroup: a total, not a number for each pod.

        It is empty if the PodGroup has no `minResources`.
        """
        return (self.group.spec.min_resources if self.group else None) or {}

    @property
    def version(self) -> str:
        """The PodGroup's resourceVersion as Volcano sent it; "" if none was sent."""
        return self.group.metadata.resource_version if self.group else ""

    @property
    def conditions(self) -> Sequence[Mapping[str, object]]:
        """The PodGroup's conditions as Volcano sent them."""
        return (self.group.status.conditions if self.group else None) or ()


class _JobArgs(msgspec.Struct, frozen=True):
    job: Job


class _TaskArgs(msgspec.Struct, frozen=True):
    task: Task


class _EvictArgs(msgspec.Struct, frozen=True):
    evictor: Task
    evictees: list[msgspec.Raw] | None = None


class Evictee(msgspec.Struct, frozen=True):
    """A running task that Volcano may evict, and the JSON in which Volcano sent it.

    The answer repeats that JSON to name the task as a victim.
    """

    task: Task
    sent: msgspec.Raw


class EvictArgs(msgspec.Struct, frozen=True):
    """Body of preemptable and reclaimable: a pending task, and evictees.

    Evictees are running tasks that Volcano may evict to make room for that task.
    """

    evictor: Task
    evictees: tuple[Evictee, ...]


_JOB = msgspec.json.Decoder(_JobArgs)
_TASK_ARGS = msgspec.json.Decoder(_TaskArgs)
_EVICT = msgspec.json.Decoder(_EvictArgs)
_TASK = msgspec.json.Decoder(Task)
_POD = msgspec.json.Decoder(objects.Pod)
_ENCODE = msgspec.json.Encoder()

#: Return the decoded request body of the verb in their names; raise BodyError for a
#: malformed one.
predicate_args = partial(decode_body, msgspec.json.Decoder(PredicateArgs), where="body")
prioritize_args = partial(
    decode_body, msgspec.json.Decoder(PrioritizeArgs), where="body"
)

FITS = _ENCODE.encode({"status": "", "code": Code.FITS})


def job_args(body: bytes) -> Job:
    """Decode the job in the request body of jobEnqueueable.

    Raises:
        BodyError: The body is malformed.
    """
    return decode_body(_JOB, body, "body").job


def task_args(body: bytes) -> Task:
    """Decode the task in the request body of allocateFunc or deallocateFunc.

    Raises:
        BodyError: The body is malformed.
    """
    return decode_body(_TASK_ARGS, body, "body").task


def evict_args(body: bytes) -> EvictArgs:
    """Decode the request body of preemptable or reclaimable.

    Raises:
        BodyError: The body is malformed.
    """
    args = decode_body(_EVICT, body, "body")
    try:
        body.decode()  # skipped bytes are not checked, yet go into the answer
    except UnicodeDecodeError as error:
        raise BodyError("body: expected UTF-8, found other bytes") from error
    evictees = tuple(
        Evictee(decode_body(_TASK, sent, f"body.evictees[{i}]"), sent)
        for i, sent in enumerate(args.evictees or ())
    )
    return EvictArgs(args.evictor, evictees)


def pod_of(task: Task) -> objects.Pod:
    """Decode the Pod object that Volcano sent within a task.

    Raises:
        BodyError: The Pod object is malformed.
    """
    return decode_body(_POD, task.pod, "Pod")


def predicate_answer(text: str, code: Code) -> bytes:
    """Encode the answer of predicate for a refused node or an error.

    Args:
        text: Why the node is refused, or the error.
        code: UNSCHEDULABLE if evictions may help, UNRESOLVABLE if not, ERROR for
            errors.
    """
    return _ENCODE.encode({"status": text, "code": code})


def scores_answer(scores: Mapping[str, float]) -> bytes:
    """Encode the answer of prioritize from {node: score}."""
    return _ENCODE.encode({"nodeScore": scores, "errorMessage": ""})


def vote_answer(vote: Vote) -> bytes:
    """Encode the answer of jobEnqueueable, which consists of a vote only."""
    return _ENCODE.encode({"status": vote})


def victims_answer(vote: Vote, victims: Sequence[msgspec.Raw]) -> bytes:
    """Encode the answer of preemptable or reclaimable.

    Args:
        vote: PERMIT if there are victims. ABSTAIN if the task for which Volcano would
            evict pods asks for no NPU. Otherwise REJECT.
        victims: JSON of each task to evict, as Volcano sent it.
    """
    return _ENCODE.encode({"status": vote, "victims": victims})


def task_answer(text: str) -> bytes:
    """Encode the answer of allocateFunc or deallocateFunc.

    Args:
        text: Error for Volcano; "" means success.
    """
    return _ENCODE.encode({"errorMessage": text})
