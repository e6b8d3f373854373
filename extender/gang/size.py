"""How many pods that ask for NPUs has a job, as the object says that made them?

The objects of training operators, JobSets, LeaderWorkerSets and Volcano carry the pods'
templates, so the pods without NPUs (an MPI launcher, a parameter server) can be left
out. Groups of pods say a number only: there pods without NPUs count as well.

Pure: reads what the API server sent; whatever is missing or of another type is not
said, and not an error, since these objects belong to others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: A decoded object of the API server.
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many pods are a job."""

    count: int
    #: whether pods that ask for no NPUs are counted
    counts_all: bool = False


def size_of(kind: str, found: object, resources: Iterable[str]) -> Size | None:
    """How many pods a job has; None when its object does not say.

    Args:
        kind: Of the job, as `membership.ROWS` call it.
        found: The object, decoded.
        resources: What pods ask for that count.
    """
    spec = _inner(found, "spec")
    for template, count in _templates(kind, spec):
        if template is None:
            return Size(count=count, counts_all=True)
    asked = frozenset(resources)
    counted = [
        count
        for template, count in _templates(kind, spec)
        if template is not None and _asks(template, asked)
    ]
    return Size(count=sum(counted)) if counted else None


#: A pod template with the number of pods made from it; None: a number of any pods.
_Part = tuple[Object | None, int]


def _templates(kind: str, spec: Object) -> Iterator[_Part]:
    read = _READERS.get(kind)
    return read(spec) if read is not None else iter(())


def _training(spec: Object) -> Iterator[_Part]:
    """`pytorchReplicaSpecs`, `mpiReplicaSpecs`, `replicaSpecs` …: {role: …}."""
    for key, roles in spec.items():
        if key.lower().endswith("replicaspecs") and isinstance(roles, Mapping):
            for role in roles.values():
                yield _inner(role, "template"), _number(role, "replicas", 1)


def _jobset(spec: Object) -> Iterator[_Part]:
    for each in _items(spec, "replicatedJobs"):
        job = _inner(each, "template", "spec")
        pods = _number(job, "parallelism", 1)
        yield _inner(job, "template"), _number(each, "replicas", 1) * pods


def _worker_set(spec: Object) -> Iterator[_Part]:
    group = _inner(spec, "leaderWorkerTemplate")
    worker = _inner(group, "workerTemplate")
    yield _inner(group, "leaderTemplate") or worker, 1
    yield worker, _number(group, "size", 1) - 1


def _volcano(spec: Object) -> Iterator[_Part]:
    for task in _items(spec, "tasks"):
        yield _inner(task, "template"), _number(task, "replicas", 1)


def _job(spec: Object) -> Iterator[_Part]:
    """A Job whose pods all run at once; of others each pod is for itself."""
    pods = _number(spec, "parallelism", 1)
    is_one = (
        spec.get("completionMode") == "Indexed"
        and _number(spec, "completions", 0) == pods
    )
    yield _inner(spec, "template"), pods if is_one else 1


def _native(spec: Object) -> Iterator[_Part]:
    """A group with the policy `basic` is none for the scheduler."""
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
    limits = (_inner(each, "resources", "limits") for each in containers)
    return any(str(each.get(key, 0)) != "0" for each in limits for key in resources)


def _inner(found: object, *keys: str) -> Object:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _items(found: Object, key: str) -> list[Object]:
    items = found.get(key)
    some = items if isinstance(items, list) else []
    return [each for each in some if isinstance(each, Mapping)]


def _number(found: object, key: str, default: int) -> int:
    said = found.get(key) if isinstance(found, Mapping) else None
    return said if isinstance(said, int) and said >= 0 else default
