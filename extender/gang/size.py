"""Read from a job's API object, such as a JobSet, how many pods with NPUs the job has.

JobSets, LeaderWorkerSets, Volcano Jobs, Jobs and the jobs of training operators contain
pod templates. Pods without NPUs (an MPI launcher, a parameter server) can thus be left
out. PodGroups state a number only; that number includes pods without NPUs.

A missing or malformed field is not an error, since these objects belong to other
programs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: A decoded object of the API server.
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Number of pods of a job, either of all its pods or of those with NPUs only."""

    count: int
    #: whether pods without NPUs are included
    counts_all: bool = False


def size_of(kind: str, job: object, resources: Iterable[str]) -> Size | None:
    """Return the number of pods of a job, as the job's API object states it.

    The result is None if the object has no pod template that asks for NPUs. PodGroups
    have no templates. Their result is never None; it is 1 if they state no number.

    Args:
        kind: Kind of the job, as in `membership.ROWS`.
        resources: Resource names of NPUs. If the object has pod templates, only pods
            that ask for one of these resources are counted.
    """
    read, asked = _READERS.get(kind), frozenset(resources)
    counts: list[int] = []
    for template, count in read(_inner(job, "spec")) if read is not None else ():
        if template is None:
            return Size(count=count, counts_all=True)
        if _asks(template, asked):
            counts.append(count)
    return Size(count=sum(counts)) if counts else None


#: (pod template, number of pods made from it); None: a number of pods of any kind.
_Part = tuple[Object | None, int]


def _training(spec: Object) -> Iterator[_Part]:
    """Yield each pod template of a training job with its number of pods.

    The templates are in the field `pytorchReplicaSpecs`, `mpiReplicaSpecs`,
    `replicaSpecs` or similar, as {role: template and number of replicas}.
    """
    for key, roles in spec.items():
        if key.lower().endswith("replicaspecs") and isinstance(roles, Mapping):
            for role in roles.values():
                yield _inner(role, "template"), _number(role, "replicas", 1)


def _jobset(spec: Object) -> Iterator[_Part]:
    for replicated_job in _items(spec, "replicatedJobs"):
        job = _inner(replicated_job, "template", "spec")
        pods = _number(job, "parallelism", 1)
        yield _inner(job, "template"), _number(replicated_job, "replicas", 1) * pods


def _worker_set(spec: Object) -> Iterator[_Part]:
    group = _inner(spec, "leaderWorkerTemplate")
    worker = _inner(group, "workerTemplate")
    yield _inner(group, "leaderTemplate") or worker, 1
    yield worker, _number(group, "size", 1) - 1


def _volcano(spec: Object) -> Iterator[_Part]:
    for task in _items(spec, "tasks"):
        yield _inner(task, "template"), _number(task, "replicas", 1)


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
    yield _inner(spec, "template"), pods if is_one else 1


def _native(spec: Object) -> Iterator[_Part]:
    """Yield `minCount` of a Kubernetes PodGroup; 1 if its policy is not `gang`."""
    yield None, _number(_inner(spec, "schedulingPolicy", "gang"), "minCount", 1)


def _minimum(spec: Object) -> Iterator[_Part]:
    yield None, _number(spec, "minMember", 1)


_READERS: Mapping[str, Callable[[Object], Iterator[_Part]]] = {
    "Training job": _training,
    "JobSet": _jobset,
    "LeaderWorkerSet": _worker_set,
    "Volcano Job": _volcano,
    "PodGroup of Kubernetes": _native,
    "PodGroup": _minimum,
    "PodGroup of Volcano": _minimum,
    "Job": _job,
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
