"""Read from a job's API object, such as a JobSet, how many pods with NPUs the job has.

JobSets, LeaderWorkerSets, Volcano Jobs, RayClusters, Jobs and the jobs of training
operators contain pod templates. Pods without NPUs (an MPI launcher, a parameter server)
can thus be left out. PodGroups state only how many pods must run together; that number
includes pods without NPUs.

An elastic job may run with fewer pods than it has: `Size.least` of `Size.count`. Some
controllers make pods only when others are ready, such as the workers of a leader
(`Followers`).

A missing or malformed field is not an error, since these objects belong to other
programs.
"""

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Followers:
    """Pods that are made from one template once other pods of their job are ready."""

    #: as in `membership.Row.role`, in lower case
    role: str = ""
    numbers: tuple[Number, ...]
    template: Object


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
    #: pods that have succeeded, or failed for good, as the object counts them
    succeeded: int = 0
    #: pods of `count` that are made only when others are ready; all ask for NPUs
    followers: tuple[Followers, ...] = ()
    #: pods that are made when others have completed: jobs of their own, not in `count`
    stages: tuple["Stage", ...] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Part of a job whose pods are made when those of an earlier part have completed.

    It is planned as a job of its own.
    """

    name: str
    #: roles of its pods, in lower case
    roles: frozenset[str]
    size: Size


def whole(count: int, *, counts_all: bool = False) -> Size:
    """Return the size of a job that runs with all its pods only."""
    return Size(count=count, least=count, counts_all=counts_all)


def size_of(
    kind: str, job: object, resources: Iterable[str], stated: int | None = None
) -> Size | None:
    """Return the numbers of pods of a job, as the job's API object states them.

    The result is None if the object has no pod template that asks for NPUs. PodGroups
    have no templates. Their result is never None; its least number is 1 if they state
    none.

    Args:
        kind: Kind of the job, as in `membership.ROWS`.
        resources: Resource names of NPUs. If the object has pod templates, only pods
            that ask for one of these resources are counted.
        stated: Number of pods that a pod of the job states. It counts for a group of a
            LeaderWorkerSet, which keeps it when the object is edited.
    """
    if kind in _LEAST:
        return Size(count=None, least=_LEAST[kind](job), counts_all=True)
    asked = frozenset(resources)
    read = _READERS.get(kind)
    if read is _worker_set and stated is not None:
        read = partial(_worker_set, stated=stated)
    parts = list(read(_inner(job))) if read is not None else []
    ours = [part for part in parts if _asks(part.template, asked)]
    if not ours:
        return None
    stages = _split_stages(parts, {part.name for part in ours})
    least = _LEAST_OF_PARTS.get(kind, _all_of)(job, parts) if len(stages) == 1 else None
    first, *others = (
        (name, _size_of_parts(of_stage, asked, least))
        for name, of_stage in stages.items()
    )
    return replace(
        first[1],
        succeeded=_succeeded(kind, job),
        stages=tuple(
            Stage(
                name=name,
                roles=frozenset(part.role for part in stages[name]),
                size=size,
            )
            for name, size in others
        ),
    )


def _size_of_parts(
    parts: Sequence["_Part"], asked: frozenset[str], least: int | None
) -> Size:
    """Return the size of parts of a job that are planned together.

    Args:
        least: How many pods of the parts must run; None: as many as all of them need.
    """
    ours = [part for part in parts if _asks(part.template, asked)]
    size = _counted(parts, ours, _all_of(None, parts) if least is None else least)
    later = _names_of_later(parts, {part.name for part in ours})
    followers = tuple(
        Followers(role=part.role, numbers=part.numbers, template=part.template)
        for part in ours
        if part.name in later
    )
    return replace(size, followers=followers)


def _split_stages(
    parts: Sequence["_Part"], ours: Collection[str]
) -> dict[str, list["_Part"]]:
    """Return {name of a stage: its parts}, the first stage first, named "".

    A part begins a stage if it is made when a part with NPUs has completed. A part that
    is made when another is ready, or one without NPUs has completed, is of its stage.

    Args:
        ours: Names of the parts that ask for NPUs.
    """
    stage_of: dict[str, str] = {}
    stages: dict[str, list[_Part]] = {"": []}
    for part in parts:
        before = {stage_of.get(name, "") for name in part.after | part.completed}
        stage = part.name if part.completed & set(ours) else max(before, default="")
        stage_of[part.name] = stage
        stages.setdefault(stage, []).append(part)
    return stages


def _succeeded(kind: str, job: object) -> int:
    """Return how many pods of a Job have succeeded or failed for good; 0 of others.

    A Job never begins again, so they stay so. JobSets and others do. The failed ones
    are those whose index has used up its `backoffLimitPerIndex`.
    """
    if kind != "Job":
        return 0
    status = _inner(job, "status")
    failed = count_indexes(status.get("failedIndexes"))
    return _number(status, "succeeded", 0) + failed


def count_indexes(text: object) -> int:
    """Return how many indexes a text such as "1,3-5,7" lists; 0 if it is malformed."""
    if not isinstance(text, str):
        return 0
    ends = [part.partition("-")[::2] for part in text.split(",")]
    if None in map(parse_count, (end for pair in ends for end in pair if end)):
        return 0
    return sum(int(last or first) - int(first) + 1 for first, last in ends if first)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
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


def _names_of_later(parts: Sequence[_Part], ours: Collection[str]) -> set[str]:
    """Return the names of the parts that begin when one of the parts `ours` is ready.

    A part begins also when parts are ready, or have completed, that themselves begin
    so.
    """
    later: set[str] = set()
    for _ in parts:
        begun = later.union(ours)
        later |= {p.name for p in parts if (p.after | p.completed) & begun}
    return later


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
    `replicaSpecs` or similar, as {role: template and number of replicas}. An elastic
    policy counts workers only.

    Source:
        training-operator v1.9 `setElasticPolicy`: the least is by default the largest
        number, and that all workers.
        mpi-operator v2beta1 `LauncherCreationPolicy`: with `WaitForWorkersReady`, the
        launcher is made when the workers are ready.
    """
    waits = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
    policy = _inner(spec, "elasticPolicy")
    bounds = (_number(policy, key, 0) for key in ("minReplicas", "maxReplicas"))
    elastic = next(filter(None, bounds), 0)
    for key, roles in spec.items():
        if key.lower().endswith("replicaspecs") and isinstance(roles, Mapping):
            for name, role in roles.items():
                count = _number(role, "replicas", 1)
                part = _part(_inner(role, "template"), count, name=name)
                is_last = waits and part.role == "launcher"
                after = frozenset({"Worker"} if is_last else ())
                is_elastic = elastic > 0 and part.role == "worker"
                least = elastic if is_elastic else count
                yield replace(part, least=least, after=after)


def _jobset(job: Object) -> Iterator[_Part]:
    """Yield the pod template of each replicated job of a JobSet.

    Source:
        jobset `reconcileReplicatedJobs`: with `InOrder`, or `dependsOn` with `Ready`,
        a replicated job is made when the pods of those before it are ready; `dependsOn`
        with `Complete`, when they have succeeded. `podWebhook.ValidateCreate`: with
        exclusive topology, pods are made when the first of their job has a node.
        kubernetes v1.36 `manageJob`: no more pods than completions.
    """
    spec = _inner(job, "spec")
    is_in_order = _inner(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder"
    before: set[str] = set()
    for replicated_job in _items(spec, "replicatedJobs"):
        name = str(replicated_job.get("name"))
        job_spec = _inner(replicated_job, "template", "spec")
        pods = _number(job_spec, "parallelism", 1)
        pods = min(pods, _number(job_spec, "completions", pods))
        needed = {
            str(other.get("name")): other.get("status") == "Complete"
            for other in _items(replicated_job, "dependsOn")
        }
        after = frozenset(other for other, completes in needed.items() if not completes)
        replicas = _number(replicated_job, "replicas", 1)
        template = _inner(job_spec, "template")
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
    levels = _inner(job), _inner(replicated_job, "template")
    notes = [_inner(level, "metadata", "annotations") for level in levels]
    own = [texts for texts in notes if _JOBS_EXCLUSIVE in texts]
    return bool(own) and not any(_JOBS_BY_LABEL in texts for texts in own)


def _worker_set(job: Object, stated: int | None = None) -> Iterator[_Part]:
    """Yield leader and workers of one group of a LeaderWorkerSet.

    Args:
        stated: Number of pods of the group; None is that in the object.

    Source:
        lws `PodReconciler.Reconcile`: the workers are made when the leader is ready
        (`LeaderReady`), or has a node (exclusive topology), by the revision of the
        leader: an edited size counts for groups that were updated since.
    """
    spec = _inner(job, "spec")
    group = _inner(spec, "leaderWorkerTemplate")
    worker = _inner(group, "workerTemplate")
    notes = _inner(job, "metadata", "annotations")
    waits = spec.get("startupPolicy") == "LeaderReady" or _EXCLUSIVE in notes
    size = _number(group, "size", 1) if stated is None else stated
    leader = _part(_inner(group, "leaderTemplate") or worker, min(size, 1))
    yield replace(leader, name="leader")
    workers = _part(worker, max(size - 1, 0), first=1)
    after = frozenset({"leader"} if waits else ())
    yield replace(workers, name="workers", after=after)


def _volcano(job: Object) -> Iterator[_Part]:
    """Yield the pod template of each task of a Volcano Job.

    A task without `minAvailable` needs all its pods, or the pods of so many partitions.

    Source:
        volcano v1.14.1 `getMinTaskMember`, `waitDependsOnTaskMeetCondition`.
    """
    for task in _items(_inner(job, "spec"), "tasks"):
        count = _number(task, "replicas", 1)
        policy = _inner(task, "partitionPolicy")
        partitions = _number(policy, "minPartitions", 0)
        default = partitions * _number(policy, "partitionSize", 0) or count
        least = _number(task, "minAvailable", default)
        names = _inner(task, "dependsOn").get("name")
        after = frozenset(map(str, names)) if isinstance(names, list) else frozenset()
        part = _part(_inner(task, "template"), count, name=task.get("name"))
        yield replace(part, least=min(least, count), after=after)


def _ray(job: Object) -> Iterator[_Part]:
    """Yield the pod template of the head and of each worker group of a RayCluster.

    With the autoscaler a group needs `minReplicas`, else all its replicas. A replica
    is `numOfHosts` pods.

    Source:
        kuberay v1.7 `GetWorkerGroupDesiredReplicas`; `calculatePodGroupParams`.
    """
    spec = _inner(job, "spec")
    yield _part(_inner(spec, "headGroupSpec", "template"), 1, name=RAY_HEAD)
    is_scaled = spec.get("enableInTreeAutoscaling") is True
    for group in _items(spec, "workerGroupSpecs"):
        least = _number(group, "minReplicas", 0)
        wanted = max(_number(group, "replicas", least), least)
        replicas = min(wanted, _number(group, "maxReplicas", wanted))
        hosts = _number(group, "numOfHosts", 1)
        if group.get("suspend") is True:
            replicas = 0
        template, name = _inner(group, "template"), group.get("groupName")
        part = _part(template, replicas, range(hosts), name)
        needed = min(least, replicas) if is_scaled else replicas
        yield replace(part, least=needed * hosts)


def _job(job: Object) -> Iterator[_Part]:
    """Yield the pod template of a Job, and how many of its pods are planned together.

    An Indexed Job with equal `completions` and `parallelism` is planned as a whole. The
    pods of any other Job do not need each other, so the number is 1.
    """
    spec = _inner(job, "spec")
    pods = _number(spec, "parallelism", 1)
    is_one = (
        spec.get("completionMode") == "Indexed"
        and _number(spec, "completions", 0) == pods
    )
    yield _part(_inner(spec, "template"), pods if is_one else 1)


def _set(job: Object) -> Iterator[_Part]:
    """Yield the first pod of a StatefulSet, and the others.

    Source:
        kubernetes v1.36 `stateful_set_control.go`: with `OrderedReady`, the default,
        each pod is made when those before it are ready.
    """
    spec = _inner(job, "spec")
    template = _inner(spec, "template")
    first = _number(_inner(spec, "ordinals"), "start", 0)
    count = _number(spec, "replicas", 1)
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
) -> _Part:
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
    return _Part(
        template=template,
        count=count,
        numbers=tuple(islice(numbers, _LISTED)),
        name=text,
        role=text.lower(),
        least=count,
    )


def _native(job: object) -> int:
    """Return `minCount` of a Kubernetes PodGroup; 1 if its policy is not `gang`."""
    return _number(_inner(job, "spec", "schedulingPolicy", "gang"), "minCount", 1)


def _minimum(job: object) -> int:
    return _number(_inner(job, "spec"), "minMember", 1)


def _all_of(_job: object, parts: Sequence[_Part]) -> int:
    return sum(part.least for part in parts)


def _least_available(job: object, parts: Sequence[_Part]) -> int:
    """Return the least number of a Volcano Job; without it, what its tasks need.

    Source:
        MindCluster, elastic training: `minAvailable` has to be 1 then.
    """
    stated = _number(_inner(job, "spec"), "minAvailable", 0)
    return _least_replicas(job) or stated or _all_of(job, parts)


def _least_scheduled(job: object, parts: Sequence[_Part]) -> int:
    """Return the least number of a training job; without it, what its roles need."""
    policy = _inner(job, "spec", "runPolicy", "schedulingPolicy")
    stated = _number(policy, "minAvailable", 0)
    return _least_replicas(job) or stated or _all_of(job, parts)


def _least_annotated(job: object, parts: Sequence[_Part]) -> int:
    """Return `schedule_minAvailable` of a StatefulSet; without it, all its pods."""
    template = _inner(job, "spec", "template")
    return _annotated(template, MIN_AVAILABLE) or _all_of(job, parts)


def _least_parallel(job: object, parts: Sequence[_Part]) -> int:
    """Return how many pods of a Job Kueue must admit; without it, all its pods."""
    return _annotated(job, _MIN_PARALLELISM) or _all_of(job, parts)


def _least_replicas(job: object) -> int:
    """Return to how many pods MindCluster may shrink a job; 0: it may not."""
    is_on = _inner(job, "metadata", "labels").get(_ELASTIC, "on") == "on"
    return _annotated(job, _MIN_REPLICAS) if is_on else 0


def _annotated(value: object, key: str) -> int:
    """Return the number in an annotation; 0 if it has none."""
    text = str(_inner(value, "metadata", "annotations").get(key))
    return parse_count(text) or 0


_READERS: Mapping[str, Callable[[Object], Iterator[_Part]]] = {
    "Training job": lambda job: _training(_inner(job, "spec")),
    "JobSet": _jobset,
    "LeaderWorkerSet": _worker_set,
    "Volcano Job": _volcano,
    "RayCluster": _ray,
    "Job": _job,
    "Minimum": _set,
}

#: {kind: reader of how many pods of all templates must run}; of other kinds all must
_LEAST_OF_PARTS: Mapping[str, Callable[[object, Sequence[_Part]], int]] = {
    "Training job": _least_scheduled,
    "Volcano Job": _least_available,
    "Job": _least_parallel,
    "Minimum": _least_annotated,
}

#: {kind without templates: reader of its least number of pods}
_LEAST: Mapping[str, Callable[[object], int]] = {
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
    return text if isinstance(text, int) and 0 <= text < 1 << 31 else default
