"""Read from a job's API object, such as a JobSet, how many pods with NPUs the job has.

JobSets, LeaderWorkerSets, Volcano Jobs, Jobs and the jobs of training operators contain
pod templates. Pods without NPUs (an MPI launcher, a parameter server) can thus be left
out. PodGroups state only how many pods must run together; that number includes pods
without NPUs.

An elastic job may run with fewer pods than it has: `Size.least` of `Size.count`.

A missing or malformed field is not an error, since these objects belong to other
programs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

#: A decoded object of the API server.
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Numbers of pods of a job, either of all its pods or of those with NPUs only."""

    #: number of pods; None: the object states only the least, all that exist count
    count: int | None
    #: number of pods that must run together; the others join as room comes
    least: int
    #: (role, least number of its pods), besides `least`; empty if no role has one
    roles: tuple[tuple[str, int], ...] = ()
    #: whether pods without NPUs are included
    counts_all: bool = False

    @property
    def is_elastic(self) -> bool:
        """Whether the job may run with fewer pods than it has."""
        return self.count is None or self.least < self.count

    @property
    def text(self) -> str:
        """The numbers for a sentence: "4", "at least 2", or "4 (at least 2)"."""
        if not self.is_elastic or self.count is None:
            return self.least_text
        return f"{self.count} ({self.least_text})"

    @property
    def least_text(self) -> str:
        """The least number for a sentence: "4", or "at least 2" of an elastic job."""
        return f"at least {self.least}" if self.is_elastic else str(self.least)


def whole(count: int, *, counts_all: bool = False) -> Size:
    """Return the size of a job that runs with all its pods only."""
    return Size(count=count, least=count, counts_all=counts_all)


def size_of(kind: str, job: object, resources: Iterable[str]) -> Size | None:
    """Return the numbers of pods of a job, as the job's API object states them.

    The result is None if the object has no pod template that asks for NPUs. PodGroups
    have no templates. Their result is never None; its least number is 1 if they state
    none.

    Args:
        kind: Kind of the job, as in `membership.ROWS`.
        resources: Resource names of NPUs. If the object has pod templates, only pods
            that ask for one of these resources are counted.
    """
    spec = _inner(job, "spec")
    if kind in _LEAST:
        return Size(count=None, least=_LEAST[kind](spec), counts_all=True)
    asked = frozenset(resources)
    read = _READERS.get(kind)
    parts = list(read(spec)) if read is not None else []
    ours = [part for part in parts if _asks(part.template, asked)]
    if not ours:
        return None
    least = _LEAST_OF_PARTS.get(kind, _all_of)(spec, parts)
    return _counted(parts, ours, least)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A pod template of a job's object, and how many pods are made from it."""

    template: Object
    count: int
    #: as in `membership.Row.role`, in lower case
    role: str = ""
    #: how many of them must run
    least: int


def _counted(parts: Sequence[_Part], ours: Sequence[_Part], least: int) -> Size:
    """Return the size of the parts with NPUs of a job.

    Args:
        ours: Those of `parts` that ask for NPUs.
        least: How many pods of all parts must run together. If the parts together need
            no more, each needs its own least number as well.
    """
    count = sum(part.count for part in ours)
    own = sum(part.least for part in ours)
    others = sum(part.count for part in parts) - count
    needs_each = least >= sum(part.least for part in parts)
    number = max(least - others, own if needs_each else 1)
    if number >= count:
        return whole(count)
    roles = tuple((part.role, part.least) for part in ours if part.least)
    return Size(count=count, least=max(number, 1), roles=roles if needs_each else ())


def _training(spec: Object) -> Iterator[_Part]:
    """Yield each pod template of a training job with its number of pods.

    The templates are in the field `pytorchReplicaSpecs`, `mpiReplicaSpecs`,
    `replicaSpecs` or similar, as {role: template and number of replicas}.
    """
    for key, roles in spec.items():
        if key.lower().endswith("replicaspecs") and isinstance(roles, Mapping):
            for name, role in roles.items():
                count = _number(role, "replicas", 1)
                yield _part(_inner(role, "template"), count, name)


def _jobset(spec: Object) -> Iterator[_Part]:
    for replicated_job in _items(spec, "replicatedJobs"):
        job = _inner(replicated_job, "template", "spec")
        pods = _number(replicated_job, "replicas", 1) * _number(job, "parallelism", 1)
        yield _part(_inner(job, "template"), pods, replicated_job.get("name"))


def _worker_set(spec: Object) -> Iterator[_Part]:
    group = _inner(spec, "leaderWorkerTemplate")
    worker = _inner(group, "workerTemplate")
    yield _part(_inner(group, "leaderTemplate") or worker, 1)
    yield _part(worker, _number(group, "size", 1) - 1)


def _volcano(spec: Object) -> Iterator[_Part]:
    """Yield the pod template of each task of a Volcano Job.

    A task without `minAvailable` needs all its pods, or the pods of so many partitions.

    Source:
        volcano v1.14.1 `getMinTaskMember`.
    """
    for task in _items(spec, "tasks"):
        count = _number(task, "replicas", 1)
        policy = _inner(task, "partitionPolicy")
        partitions = _number(policy, "minPartitions", 0)
        default = partitions * _number(policy, "partitionSize", 0) or count
        least = _number(task, "minAvailable", default)
        part = _part(_inner(task, "template"), count, task.get("name"))
        yield replace(part, least=min(least, count))


def _job(spec: Object) -> Iterator[_Part]:
    """Yield the pod template of a Job, and how many of its pods are planned together.

    An Indexed Job with equal `completions` and `parallelism` is planned as a whole. The
    pods of any other Job do not need each other, so the number is 1.
    """
    pods = _number(spec, "parallelism", 1)
    is_one = (
        spec.get("completionMode") == "Indexed"
        and _number(spec, "completions", 0) == pods
    )
    yield _part(_inner(spec, "template"), pods if is_one else 1)


def _part(template: Object, count: int, role: object = "") -> _Part:
    """Return a part of a job that needs all its pods."""
    name = role.lower() if isinstance(role, str) else ""
    return _Part(template=template, count=count, role=name, least=count)


def _native(spec: Object) -> int:
    """Return `minCount` of a Kubernetes PodGroup; 1 if its policy is not `gang`."""
    return _number(_inner(spec, "schedulingPolicy", "gang"), "minCount", 1)


def _minimum(spec: Object) -> int:
    return _number(spec, "minMember", 1)


def _all_of(_spec: Object, parts: Sequence[_Part]) -> int:
    return sum(part.least for part in parts)


def _least_available(spec: Object, parts: Sequence[_Part]) -> int:
    """Return `minAvailable` of a Volcano Job; without it, what its tasks need."""
    return _number(spec, "minAvailable", 0) or _all_of(spec, parts)


def _least_scheduled(spec: Object, parts: Sequence[_Part]) -> int:
    """Return `minAvailable` of a training job; without it, all its pods."""
    policy = _inner(spec, "runPolicy", "schedulingPolicy")
    return _number(policy, "minAvailable", 0) or _all_of(spec, parts)


_READERS: Mapping[str, Callable[[Object], Iterator[_Part]]] = {
    "Training job": _training,
    "JobSet": _jobset,
    "LeaderWorkerSet": _worker_set,
    "Volcano Job": _volcano,
    "Job": _job,
}

#: {kind: reader of how many pods of all templates must run}; of other kinds all must
_LEAST_OF_PARTS: Mapping[str, Callable[[Object, Sequence[_Part]], int]] = {
    "Training job": _least_scheduled,
    "Volcano Job": _least_available,
}

#: {kind without templates: reader of its least number of pods}
_LEAST: Mapping[str, Callable[[Object], int]] = {
    "PodGroup of Kubernetes": _native,
    "PodGroup": _minimum,
    "PodGroup of Volcano": _minimum,
}


def _asks(template: Object, resources: frozenset[str]) -> bool:
    spec = _inner(template, "spec")
    containers = [*_items(spec, "containers"), *_items(spec, "initContainers")]
    limits = (_inner(container, "resources", "limits") for container in containers)
    return any(
        str(container_limits.get(key, 0)) != "0"
        for container_limits in limits
        for key in resources
    )


def _inner(value: object, *keys: str) -> Object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _items(value: Object, key: str) -> list[Object]:
    items = value.get(key)
    items_or_none = items if isinstance(items, list) else []
    return [item for item in items_or_none if isinstance(item, Mapping)]


def _number(value: object, key: str, default: int) -> int:
    text = value.get(key) if isinstance(value, Mapping) else None
    return text if isinstance(text, int) and text >= 0 else default
