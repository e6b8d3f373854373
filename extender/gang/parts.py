"""Read the pod templates in a job's API object: the parts of the job.

Each part has the number of its pods, how many of these must run, and which parts must
be ready or have completed before its pods are made. The objects belong to other
programs: a missing or malformed field is no error.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from scheduler_core.wire.annotations import parse_count

#: A decoded object of the API server.
Object = Mapping[str, Any]

#: Annotations of a LeaderWorkerSet whose groups, or of a JobSet whose jobs, each get a
#: topology domain of their own; and of a JobSet that has no webhook look for it.
_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_JOBS_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_JOBS_BY_LABEL = "alpha.jobset.sigs.k8s.io/node-selector"
#: Number of a controller's pods that must run together, for any controller.
MIN_AVAILABLE = "huawei.com/schedule_minAvailable"
#: Annotation of a job with the pods to which MindCluster may shrink it, and the label
#: that switches that on.
_MIN_REPLICAS = "minReplicas"
_ELASTIC = "elastic-scheduling"
#: Annotation of a Job with the pods that Kueue must admit at least.
_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
#: Role of the head of a RayCluster.
RAY_HEAD = "headgroup"


#: Of one template, the pods that are listed by number at most. More do not fit one job.
_LISTED = 10_000

#: Number of a pod in its role, as in `membership.Membership.place`.
Number = tuple[int, int]


class Division(NamedTuple):
    """How the pods of a role are divided into units: all of one hold chips, or none."""

    role: str
    #: of a unit, for sentences: "replica", "partition"
    name: str
    #: number of the pods of a unit
    pods: int
    #: number of the first numbers that its pods have
    width: int

    def unit_of(self, number: Number) -> int:
        """Return the number of the unit of a pod with this number."""
        return number[0] // self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A pod template of a job's object, and how many pods are made from it."""

    template: Object
    count: int
    #: numbers of the first `_LISTED` of the pods in their role
    numbers: tuple[Number, ...]
    #: name of the part among those of the job
    name: str = ""
    #: as in `membership.Row.role`, in lower case
    role: str = ""
    #: how many of them must run
    least: int
    #: names of the parts that must be ready before these pods are made
    after: frozenset[str] = frozenset()
    #: names of the parts that must have completed before
    completed: frozenset[str] = frozenset()
    #: None: each of its pods may hold chips by itself
    division: Division | None = None


def _training(spec: Object) -> Iterator[Part]:
    """Yield each pod template of a training job with its number of pods.

    The templates are in the field `pytorchReplicaSpecs`, `mpiReplicaSpecs`,
    `replicaSpecs` or similar, as {role: template and number of replicas}. An elastic
    policy counts workers only.

    Source:
        training-operator v1.9 `setElasticPolicy`: the least is by default the largest
        number, and that all workers.
        mpi-operator v2beta1 `LauncherCreationPolicy`: with `WaitForWorkersReady`, the
        launcher is made when the workers are ready.
    """
    waits = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    policy = inner(spec, "elasticPolicy")
    bounds = (number_of(policy, key, 0) for key in ("minReplicas", "maxReplicas"))
    elastic = next(filter(None, bounds), 0)
    for key, roles in spec.items():
        if key.lower().endswith("replicaspecs") and isinstance(roles, Mapping):
            for name, role in roles.items():
                count = number_of(role, "replicas", 1)
                part = _part(inner(role, "template"), count, name=name)
                is_last = waits and part.role == "launcher"
                after = frozenset({"Worker"} if is_last else ())
                is_elastic = elastic > 0 and part.role == "worker"
                least = elastic if is_elastic else count
                yield replace(part, least=least, after=after)


def _jobset(job: Object) -> Iterator[Part]:
    """Yield the pod template of each replicated job of a JobSet.

    Source:
        jobset `reconcileReplicatedJobs`: with `InOrder`, or `dependsOn` with `Ready`,
        a replicated job is made when the pods of those before it are ready; `dependsOn`
        with `Complete`, when they have succeeded. `podWebhook.ValidateCreate`: with
        exclusive topology, pods are made when the first of their job has a node.
        kubernetes v1.36 `manageJob`: no more pods than completions.
    """
    spec = inner(job, "spec")
    is_in_order = inner(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder"
    before: set[str] = set()
    for replicated_job in items_of(spec, "replicatedJobs"):
        name = str(replicated_job.get("name"))
        job_spec = inner(replicated_job, "template", "spec")
        pods = number_of(job_spec, "parallelism", 1)
        pods = min(pods, number_of(job_spec, "completions", pods))
        needed = {
            str(other.get("name")): other.get("status") == "Complete"
            for other in items_of(replicated_job, "dependsOn")
        }
        after = frozenset(other for other, completes in needed.items() if not completes)
        replicas = number_of(replicated_job, "replicas", 1)
        template = inner(job_spec, "template")
        is_exclusive = _is_exclusive(job, replicated_job)
        first = range(min(pods, 1) if is_exclusive else pods)
        yield replace(
            _part(template, replicas, first, name),
            after=after | (before if is_in_order else set()),
            completed=frozenset(needed) - after,
        )
        others = range(len(first), pods)
        if others:
            rest = _part(template, replicas, others, name)
            yield replace(rest, name=f"{name}/others", after=frozenset({name}))
        before.add(name)


def _is_exclusive(job: object, replicated_job: Object) -> bool:
    """Whether a webhook lets only the first pod of each job begin without a node."""
    levels = inner(job), inner(replicated_job, "template")
    notes = [inner(level, "metadata", "annotations") for level in levels]
    own = [texts for texts in notes if _JOBS_EXCLUSIVE in texts]
    return bool(own) and not any(_JOBS_BY_LABEL in texts for texts in own)


def read_worker_set(job: Object, stated: int | None = None) -> Iterator[Part]:
    """Yield leader and workers of one group of a LeaderWorkerSet.

    Args:
        stated: Number of pods of the group; None is that in the object.

    Source:
        lws `PodReconciler.Reconcile`: the workers are made when the leader is ready
        (`LeaderReady`), or has a node (exclusive topology), by the revision of the
        leader: an edited size counts for groups that were updated since.
    """
    spec = inner(job, "spec")
    group = inner(spec, "leaderWorkerTemplate")
    worker = inner(group, "workerTemplate")
    notes = inner(job, "metadata", "annotations")
    waits = spec.get("startupPolicy") == "LeaderReady" or _EXCLUSIVE in notes
    size = number_of(group, "size", 1) if stated is None else stated
    leader = _part(inner(group, "leaderTemplate") or worker, min(size, 1))
    yield replace(leader, name="leader")
    workers = _part(worker, max(size - 1, 0), first=1)
    after = frozenset({"leader"} if waits else ())
    yield replace(workers, name="workers", after=after)


def _volcano(job: Object) -> Iterator[Part]:
    """Yield the pod template of each task of a Volcano Job.

    A task without `minAvailable` needs all its pods, or the pods of so many partitions.

    Source:
        volcano v1.14.1 `getMinTaskMember`, `waitDependsOnTaskMeetCondition`,
        `createJobPod`: the partition of a pod is its index through `partitionSize`.
    """
    for task in items_of(inner(job, "spec"), "tasks"):
        count = number_of(task, "replicas", 1)
        policy = inner(task, "partitionPolicy")
        partitions = number_of(policy, "minPartitions", 0)
        pods = number_of(policy, "partitionSize", 0)
        default = partitions * pods or count
        least = number_of(task, "minAvailable", default)
        names = inner(task, "dependsOn").get("name")
        after = frozenset(map(str, names)) if isinstance(names, list) else frozenset()
        part = _part(inner(task, "template"), count, name=task.get("name"))
        is_divided = pods > 1 and count % pods == 0
        division = Division(part.role, "partition", pods, width=pods)
        yield replace(
            part,
            least=min(least, count),
            after=after,
            division=division if is_divided else None,
        )


def _ray(job: Object) -> Iterator[Part]:
    """Yield the pod template of the head and of each worker group of a RayCluster.

    With the autoscaler a group needs `minReplicas`, else all its replicas. A replica
    is `numOfHosts` pods, which the controller makes and deletes together.

    Source:
        kuberay v1.7 `GetWorkerGroupDesiredReplicas`; `calculatePodGroupParams`;
        `reconcileMultiHostWorkerGroup`.
    """
    spec = inner(job, "spec")
    yield _part(inner(spec, "headGroupSpec", "template"), 1, name=RAY_HEAD)
    is_scaled = spec.get("enableInTreeAutoscaling") is True
    for group in items_of(spec, "workerGroupSpecs"):
        least = number_of(group, "minReplicas", 0)
        wanted = max(number_of(group, "replicas", least), least)
        replicas = min(wanted, number_of(group, "maxReplicas", wanted))
        hosts = number_of(group, "numOfHosts", 1)
        if group.get("suspend") is True:
            replicas = 0
        template, name = inner(group, "template"), group.get("groupName")
        part = _part(template, replicas, range(hosts), name)
        needed = min(least, replicas) if is_scaled else replicas
        division = Division(part.role, "replica", hosts, width=1)
        yield replace(
            part, least=needed * hosts, division=division if hosts > 1 else None
        )


def _job(job: Object) -> Iterator[Part]:
    """Yield the pod template of a Job, and how many of its pods are planned together.

    An Indexed Job with equal `completions` and `parallelism` is planned as a whole, as
    is one of which several pods must be admitted. The pods of any other Job do not need
    each other, so the number is 1.

    Source:
        kueue v0.18 `Job.RunWithPodSetsInfo`: with a least number, the parallelism of an
        admitted Job is lowered, and `completions` only if both are to stay equal.
    """
    spec = inner(job, "spec")
    pods, completions = _parallelism(job), number_of(spec, "completions", 0)
    is_indexed = spec.get("completionMode") == "Indexed"
    is_one = is_indexed and (completions == pods or _admitted(job) > 1)
    yield _part(inner(spec, "template"), completions if is_one else 1)


def _parallelism(job: object) -> int:
    return number_of(inner(job, "spec"), "parallelism", 1)


def _admitted(job: object) -> int:
    """Return how many pods of a Job Kueue must admit; 0 if it does not say so."""
    return min(annotated(job, _MIN_PARALLELISM), _parallelism(job))


def _set(job: Object) -> Iterator[Part]:
    """Yield the first pod of a StatefulSet, and the others.

    Source:
        kubernetes v1.36 `stateful_set_control.go`: with `OrderedReady`, the default,
        each pod is made when those before it are ready.
    """
    spec = inner(job, "spec")
    template = inner(spec, "template")
    first = number_of(inner(spec, "ordinals"), "start", 0)
    count = number_of(spec, "replicas", 1)
    waits = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    yield replace(_part(template, min(count, 1), first=first), name="first")
    after = frozenset({"first"} if waits else ())
    others = _part(template, max(count - 1, 0), first=first + 1)
    yield replace(others, name="others", after=after)


def _part(
    template: Object,
    rows: int,
    columns: range = range(1),
    name: object = "",
    *,
    first: int = 0,
) -> Part:
    """Return a part of a job that needs all its pods.

    Args:
        rows: How many first numbers its pods have.
        columns: Second numbers; there is a pod of each for each first number.
        first: The least of the first numbers.
    """
    text, count = str(name), rows * len(columns)
    numbers = (
        (row, column) for row in range(first, first + rows) for column in columns
    )
    return Part(
        template=template,
        count=count,
        numbers=tuple(islice(numbers, _LISTED)),
        name=text,
        role=text.lower(),
        least=count,
    )


def _native(job: object) -> int:
    """Return `minCount` of a Kubernetes PodGroup; 1 if its policy is not `gang`."""
    return number_of(inner(job, "spec", "schedulingPolicy", "gang"), "minCount", 1)


def _minimum(job: object) -> int:
    return number_of(inner(job, "spec"), "minMember", 1)


def all_of(_job: object, parts: Sequence[Part]) -> int:
    """Return how many pods the parts need, each for itself."""
    return sum(part.least for part in parts)


def _least_available(job: object, parts: Sequence[Part]) -> int:
    """Return the least number of a Volcano Job; without it, what its tasks need.

    Source:
        MindCluster, elastic training: `minAvailable` has to be 1 then.
    """
    stated = number_of(inner(job, "spec"), "minAvailable", 0)
    return _least_replicas(job) or stated or all_of(job, parts)


def _least_scheduled(job: object, parts: Sequence[Part]) -> int:
    """Return the least number of a training job; without it, what its roles need."""
    policy = inner(job, "spec", "runPolicy", "schedulingPolicy")
    stated = number_of(policy, "minAvailable", 0)
    return _least_replicas(job) or stated or all_of(job, parts)


def _least_annotated(job: object, parts: Sequence[Part]) -> int:
    """Return `schedule_minAvailable` of a StatefulSet; without it, all its pods."""
    template = inner(job, "spec", "template")
    return annotated(template, MIN_AVAILABLE) or all_of(job, parts)


def _least_parallel(job: object, parts: Sequence[Part]) -> int:
    """Return how many pods of a Job Kueue must admit; without it, all its pods."""
    return _admitted(job) or all_of(job, parts)


def _least_replicas(job: object) -> int:
    """Return to how many pods MindCluster may shrink a job; 0: it may not."""
    is_on = inner(job, "metadata", "labels").get(_ELASTIC, "on") == "on"
    return annotated(job, _MIN_REPLICAS) if is_on else 0


READERS: Mapping[str, Callable[[Object], Iterator[Part]]] = {
    "Training job": lambda job: _training(inner(job, "spec")),
    "JobSet": _jobset,
    "LeaderWorkerSet": read_worker_set,
    "Volcano Job": _volcano,
    "RayCluster": _ray,
    "Job": _job,
    "Minimum": _set,
}

#: {kind: reader of how many pods of all templates must run}; of other kinds all must
LEAST_OF_PARTS: Mapping[str, Callable[[object, Sequence[Part]], int]] = {
    "Training job": _least_scheduled,
    "Volcano Job": _least_available,
    "Job": _least_parallel,
    "Minimum": _least_annotated,
}

#: {kind without templates: reader of its least number of pods}
LEAST: Mapping[str, Callable[[object], int]] = {
    "PodGroup of Kubernetes": _native,
    "PodGroup": _minimum,
    "PodGroup of Volcano": _minimum,
}


def inner(value: object, *keys: str) -> Object:
    """Return the object below these keys; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items_of(value: Object, key: str) -> list[Object]:
    """Return the objects in a list; empty if there is none."""
    items = value.get(key)
    items_or_none = items if isinstance(items, list) else []
    return [item for item in items_or_none if isinstance(item, Mapping)]


def number_of(value: object, key: str, default: int) -> int:
    """Return a number that is not negative; `default` if there is none."""
    text = value.get(key) if isinstance(value, Mapping) else None
    return text if isinstance(text, int) and 0 <= text < 1 << 31 else default


def annotated(value: object, key: str) -> int:
    """Return the number in an annotation; 0 if it has none."""
    text = str(inner(value, "metadata", "annotations").get(key))
    return parse_count(text) or 0


def asks_for(template: Object, resources: frozenset[str]) -> bool:
    """Return whether pods of a template ask for one of these resources."""
    spec = inner(template, "spec")
    containers = [*items_of(spec, "containers"), *items_of(spec, "initContainers")]
    limits = (inner(container, "resources", "limits") for container in containers)
    return any(
        str(container_limits.get(key, 0)) != "0"
        for container_limits in limits
        for key in resources
    )
