"""What Volcano's `extender` plugin sends and what it reads back, as values.

Inner objects have no JSON names of their own, so their keys are Go's. A predicate
carries a whole node with all its tasks; all that is read of it is the node's name.

Source: volcano-sh/volcano `pkg/scheduler/plugins/extender/` and `pkg/scheduler/api/`,
v1.13 to v1.16.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag

import msgspec

from extender.http.body import BodyError, decoded
from kube import objects

_NO_POD = msgspec.Raw(b"{}")


class Status(IntFlag):
    """How far Volcano is with a task."""

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


#: Of a task in one of these, Volcano gives nothing back that is not bound yet.
PLACED = Status.BINDING | Status.BOUND | Status.RUNNING | Status.RELEASING


class Code(IntEnum):
    """What kind of answer predicate gives."""

    FITS = 0
    ERROR = 1
    #: evicting others may help
    UNSCHEDULABLE = 2
    UNRESOLVABLE = 3


class Vote(IntEnum):
    """What a plugin says of a job or of victims."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as Volcano sees it in this session."""

    uid: str = msgspec.field(name="UID")
    namespace: str = msgspec.field(name="Namespace", default="")
    name: str = msgspec.field(name="Name", default="")
    status: int = msgspec.field(name="Status", default=0)
    #: where it is, or has just been put
    node: str = msgspec.field(name="NodeName", default="")
    priority: int = msgspec.field(name="Priority", default=0)
    pod: msgspec.Raw = msgspec.field(name="Pod", default=_NO_POD)


class _Node(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="Name")


class PredicateArgs(msgspec.Struct, frozen=True):
    """May this task go to that node?"""

    task: Task
    node: _Node


class PrioritizeArgs(msgspec.Struct, frozen=True):
    """Which of these nodes is best for this task?"""

    task: Task
    nodes: list[_Node] | None = None

    @property
    def names(self) -> list[str]:
        """The nodes, in the order of the request."""
        return [node.name for node in self.nodes or ()]


class _Anything(msgspec.Struct, frozen=True):
    """An object of which nothing is read."""


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
    """A PodGroup with its tasks."""

    name: str = msgspec.field(name="Name", default="")
    namespace: str = msgspec.field(name="Namespace", default="")
    group_uid: str = msgspec.field(name="PgUID", default="")
    tasks: dict[str, _Anything] | None = msgspec.field(name="Tasks", default=None)
    group: _Group | None = msgspec.field(name="PodGroup", default=None)

    @property
    def least(self) -> Mapping[str, objects.Quantity]:
        """What all its pods ask for together, as its PodGroup says."""
        return (self.group.spec.min_resources if self.group else None) or {}

    @property
    def version(self) -> str:
        """The PodGroup's resourceVersion, as Volcano has read it; "" is unknown."""
        return self.group.metadata.resource_version if self.group else ""

    @property
    def conditions(self) -> Sequence[Mapping[str, object]]:
        """What is said of the PodGroup, as Volcano has read it."""
        return (self.group.status.conditions if self.group else None) or ()


class _JobArgs(msgspec.Struct, frozen=True):
    job: Job


class _TaskArgs(msgspec.Struct, frozen=True):
    task: Task


class _EvictArgs(msgspec.Struct, frozen=True):
    evictor: Task
    evictees: list[msgspec.Raw] | None = None


class Evictee(msgspec.Struct, frozen=True):
    """A task that may be evicted, and the bytes that name it in the answer."""

    task: Task
    sent: msgspec.Raw


class EvictArgs(msgspec.Struct, frozen=True):
    """Whom of these may that task evict?"""

    evictor: Task
    evictees: tuple[Evictee, ...]


_PREDICATE = msgspec.json.Decoder(PredicateArgs)
_PRIORITIZE = msgspec.json.Decoder(PrioritizeArgs)
_JOB = msgspec.json.Decoder(_JobArgs)
_TASK_ARGS = msgspec.json.Decoder(_TaskArgs)
_EVICT = msgspec.json.Decoder(_EvictArgs)
_TASK = msgspec.json.Decoder(Task)
_POD = msgspec.json.Decoder(objects.Pod)
_ENCODE = msgspec.json.Encoder()

FITS = _ENCODE.encode({"status": "", "code": Code.FITS})


def predicate_args(body: bytes) -> PredicateArgs:
    """Read the body of predicate.

    Raises:
        BodyError: with the key that is wrong.
    """
    return decoded(_PREDICATE, body, "body")


def prioritize_args(body: bytes) -> PrioritizeArgs:
    """Read the body of prioritize.

    Raises:
        BodyError: with the key that is wrong.
    """
    return decoded(_PRIORITIZE, body, "body")


def job_args(body: bytes) -> Job:
    """Read the body of jobEnqueueable.

    Raises:
        BodyError: with the key that is wrong.
    """
    return decoded(_JOB, body, "body").job


def task_args(body: bytes) -> Task:
    """Read the body of allocateFunc or deallocateFunc.

    Raises:
        BodyError: with the key that is wrong.
    """
    return decoded(_TASK_ARGS, body, "body").task


def evict_args(body: bytes) -> EvictArgs:
    """Read the body of preemptable or reclaimable.

    Raises:
        BodyError: with the key that is wrong.
    """
    found = decoded(_EVICT, body, "body")
    try:
        body.decode()  # what is skipped is not looked at, and goes into the answer
    except UnicodeDecodeError as error:
        raise BodyError("body: expected UTF-8, found other bytes") from error
    evictees = tuple(
        Evictee(decoded(_TASK, sent, f"body.evictees[{i}]"), sent)
        for i, sent in enumerate(found.evictees or ())
    )
    return EvictArgs(found.evictor, evictees)


def pod_of(task: Task) -> objects.Pod:
    """Read the pod of a task.

    Raises:
        BodyError: with the key that is wrong.
    """
    return decoded(_POD, task.pod, "Pod")


def predicate_answer(text: str, code: Code) -> bytes:
    """Write the answer of predicate that says why not."""
    return _ENCODE.encode({"status": text, "code": code})


def scores_answer(scores: Mapping[str, float]) -> bytes:
    """Write the answer of prioritize."""
    return _ENCODE.encode({"nodeScore": scores, "errorMessage": ""})


def vote_answer(vote: Vote) -> bytes:
    """Write the answer of jobEnqueueable."""
    return _ENCODE.encode({"status": vote})


def victims_answer(vote: Vote, victims: Sequence[msgspec.Raw]) -> bytes:
    """Write the answer of preemptable or reclaimable."""
    return _ENCODE.encode({"status": vote, "victims": victims})


def task_answer(text: str) -> bytes:
    """Write the answer of allocateFunc or deallocateFunc; "" is done."""
    return _ENCODE.encode({"errorMessage": text})
