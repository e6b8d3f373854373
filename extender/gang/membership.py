"""Which job a pod is of, how many pods that job has, and how pods of a job are ordered.

Each controller marks the pods of a job in its own way: by labels, annotations, owners
or a field of their spec. Each way is a row of `ROWS`, and the first row that matches a
pod decides. Our own annotations, set by users, come first. PodGroups come near the end:
the objects of training jobs say more about a job than a PodGroup, which states only a
number of pods.

A pod without a matching row is a job by itself. Examples are pods of a ReplicaSet, or
of a Job without completion indexes. The extender plans such a pod only if it has the
label `tor-affinity`, which asks to choose nodes by their leaf switches. A label with
the value "null" counts as missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from extender.gang.demands import read_demands
from extender.gang.generations import UNKNOWN, Generation
from extender.gang.parts import MIN_AVAILABLE, RAY_HEAD, Number
from extender.refusals import describe_bad_size, describe_missing_job
from kube.objects import OwnerReference, Pod
from kube.workloads import VERSION
from scheduler_core.placement.siblings import FREE, Demands
from scheduler_core.products.lookup import PLAIN, Traits
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.annotations import parse_count
from scheduler_core.wire.job_annotations import RANK_INDEX

#: Our own pair of annotations: name of the job, and number of its pods with NPUs.
JOB = "ascend-affinity/job"
JOB_SIZE = "ascend-affinity/job-size"

_KUBEFLOW = "training.kubeflow.org"
_JOBSET = "jobset.sigs.k8s.io"
_LWS = "leaderworkerset.sigs.k8s.io"
_RAY = "ray.io"
_BATCH = "batch.kubernetes.io"
_VOLCANO = "volcano.sh"
#: API groups of training operators; they mark pods in the same way.
_OPERATORS = ("kubeflow.org/", "mindxdl.gitee.com/")
#: Pod groups of Kueue: name, number of pods, and two annotations with value "true".
_POD_GROUP = "kueue.x-k8s.io/pod-group-name"
_POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
_POD_GROUP_SERVES = "kueue.x-k8s.io/pod-group-serving"
_POD_GROUP_IS_FAST = "kueue.x-k8s.io/pod-group-fast-admission"
#: Versions of Kubernetes' own PodGroups: of 1.37 the first two, of 1.36 the last.
_NATIVE_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
#: Labels with the revision that the name of a ReplicaSet ends with.
_REVISIONS = ("pod-template-hash", "rollouts-pod-template-hash")
#: Roles with the lowest ranks: the other pods connect to rank 0.
_LEADING = ("master", "chief", "leader", "launcher", "scheduler", "head", RAY_HEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSource:
    """The object on the API server that says how many pods a job has."""

    #: path on the API server; with `versions`, that of the API group is `VERSION`
    path: str
    #: kind, for sentences
    kind: str
    #: versions of the API group that state the number, the best first; else in `path`
    versions: tuple[str, ...] = ()
    #: number of all its pods as the pod states it; None if it states none
    stated: int | None = None


#: Sort key: leading role, role, and two numbers.
Order = tuple[int, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The job of a pod, the job size stated by the pod, and the pod's rank in the job.

    `order` sorts the pods of a job that have no rank.
    """

    #: "kind/namespace/name", equal for all its pods
    job: str
    #: number of pods, if the pod itself states it
    size: int | None = None
    #: whether that number includes pods without NPUs
    counts_all: bool = False
    #: whether it is only the least number of pods that must run together
    is_least: bool = False
    #: whether its pods need not run together: the job may begin with one of them
    can_begin_with_one: bool = False
    #: why the pod states no number, though only the pod can; "" otherwise
    problem: str = ""
    #: where to read it otherwise
    size_source: SizeSource | None = None
    #: rank, if the pod states it
    rank: int | None = None
    #: sort key among pods without a rank
    order: Order = (0, "", 0, 0)
    #: numbers that the controller gives the pod, such as "2/0"; "" if it gives none
    index: str = ""
    generation: Generation = UNKNOWN

    @property
    def role(self) -> str:
        """Role of the pod in its job, in lower case; "" if it has none."""
        return self.order[1]

    @property
    def place(self) -> tuple[str, Number]:
        """Role and number of the pod in its job: what its successor will have too.

        The number is the rank if the pod states one; else the controller's indexes.
        """
        _, role, first, second = self.order
        return role, (first, second) if self.rank is None else (self.rank, 0)


class AbsentMember(NamedTuple):
    """A member of a job that has no pod yet: its role and its number in the job."""

    job: str
    #: "" if the controller of the job knows no roles
    role: str
    #: the indexes that the controller gives; (0, 0) if it gives none
    number: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod of a job: its name, place in the job, priority and kind of controller."""

    #: name of the pod
    name: str
    membership: Membership
    #: labels and annotations that select the product row and the job rule
    traits: Traits = PLAIN
    priority: int = 0
    #: kind of the pod's controller; "" if it has none
    owner_kind: str = ""
    #: creationTimestamp of the pod
    created: str = ""
    #: whether a scheduling gate keeps schedulers from looking at the pod
    is_gated: bool = False
    #: why no node can take the pod, whatever is free; "" if one may
    problem: str = ""
    #: whether the scheduler may ask about its PodGroup as a whole, until it is refused
    #: one pod (Kubernetes 1.37, `GenericWorkload`)
    is_in_group: bool = False
    #: which nodes it may have, and which pods it may be beside there
    demands: Demands = FREE

    @property
    def is_kept_away(self) -> bool:
        """Whether the pod can get no node as it is."""
        return self.is_gated or bool(self.problem)


def member(pod: Pod, problem: str = "") -> Member | None:
    """Return the pod as a member of its job; None for a pod that needs no plan.

    Args:
        problem: Why no node can take the pod; "" if one may.
    """
    place = planned_membership(pod)
    found = None if place is None else member_of(pod, place)
    return replace(found, problem=problem) if found and problem else found


def traits_of(pod: Pod) -> Traits:
    """Return what selects the product row and the job rule of a pod."""
    return Traits(
        annotations=pod.metadata.annotations or {},
        labels=pod.metadata.labels or {},
        node_selector=pod.spec.node_selector or {},
    )


def member_of(pod: Pod, place: Membership) -> Member:
    """Return the pod as a member with this place in a job."""
    owner = _Facts(pod).owner
    return Member(
        name=pod.metadata.name,
        membership=place,
        traits=traits_of(pod),
        priority=pod.spec.priority or 0,
        owner_kind=owner.kind if owner else "",
        created=pod.metadata.creation_timestamp or "",
        is_gated=bool(pod.spec.scheduling_gates),
        is_in_group=pod.spec.scheduling_group is not None,
        demands=read_demands(pod),
    )


class _Facts:
    """The properties of a pod that the functions in `ROWS` read."""

    def __init__(self, pod: Pod) -> None:
        self.meta = pod.metadata
        #: empty if the pod has none
        self.labels: Mapping[str, str] = pod.metadata.labels or {}
        #: empty if the pod has none
        self.annotations: Mapping[str, str] = pod.metadata.annotations or {}
        group = pod.spec.scheduling_group
        self.group = group.pod_group_name if group else ""

    def text(self, *keys: str) -> str:
        """Return the value of the first of these keys that the pod has; "" if none.

        A label counts before an annotation with the same key.
        """
        for key in keys:
            value = self.labels.get(key) or self.annotations.get(key)
            if value:
                return value
        return ""

    def number(self, *keys: str) -> int | None:
        """Return the value of the first of these keys that the pod has, as a number.

        None if no key is set, or the value is no such number (`parse_count`).
        """
        return parse_count(self.text(*keys))

    @property
    def is_marked(self) -> bool:
        """Whether a row may match: the pod has a scheduling group, or a mark."""
        return bool(self.group) or not (
            _MARKS.isdisjoint(self.labels) and _MARKS.isdisjoint(self.annotations)
        )

    @property
    def owner(self) -> OwnerReference | None:
        owners = self.meta.owner_references or ()
        return next((owner for owner in owners if owner.controller), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way in which controllers mark the pods of a job."""

    #: kind of the job, for sentences and for its key
    kind: str
    #: labels or annotations; a pod of this row has one of them, or a scheduling group
    marks: tuple[str, ...] = ()
    #: returns the job's name; "" if the row does not match; None: the first of `marks`
    name: Callable[[_Facts], str] | None = None
    #: labels or annotations that state the number of pods
    size: tuple[str, ...] = ()
    counts_all: bool = False
    #: whether these numbers are only the least that must run together
    is_least: bool = False
    #: whether the pods need not run together
    can_begin_with_one: Callable[[_Facts], bool] = lambda _facts: False
    #: returns the path of the object that states the number; "" if none does
    path: Callable[[_Facts, str], str] = lambda _facts, _name: ""
    #: versions of that object's API group that can be read, if `path` leaves it open
    versions: tuple[str, ...] = ()
    #: labels or annotations with the pod's role, and with its indexes in order
    role: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    #: index of the pod of a Job without completion indexes; "" if it has several pods
    lone_index: str = ""
    #: returns what tells pods from those that they replace as a whole
    generation: Callable[[_Facts], Generation]
    #: returns why no job can be read from the marks that the pod has; "" if one can
    problem: Callable[[_Facts], str] = lambda _facts: ""
    #: definition of these marks
    source: str


def _at(group_version: str, plural: str) -> Callable[[_Facts, str], str]:
    def path(facts: _Facts, name: str) -> str:
        namespace = f"/apis/{group_version}/namespaces/{facts.meta.namespace}"
        return f"{namespace}/{plural}/{name}"

    return path


def _operators_job(facts: _Facts, name: str) -> str:
    """Return the API path of the training job that a pod belongs to.

    API version and kind are those of the pod's owner if a training operator defines
    this kind. Any other pod counts as the launcher of an MPIJob. A Job owns such a
    launcher, but the path is that of the MPIJob.
    """
    owner = facts.owner
    if owner is None or not owner.api_version.startswith(_OPERATORS):
        return _at("kubeflow.org/v2beta1", "mpijobs")(facts, name)
    return _at(owner.api_version, f"{owner.kind.lower()}s")(facts, name)


def _of_controller(facts: _Facts) -> Generation:
    """Return the controller of a pod: one made again under its name has another UID.

    A pod without a controller has no generation. Somebody makes it again by hand, once
    the one before has gone or under another name, and deletes the one before.
    """
    owner = facts.owner
    if owner is None:
        return UNKNOWN
    api_group = owner.api_version.partition("/")[0]
    return Generation(owner.uid, f"{owner.kind}.{api_group}/{owner.name}")


def _attempt_of_jobset(facts: _Facts) -> Generation:
    """Return the JobSet of a pod and how often that has begun again.

    The jobs of a JobSet begin again one by one, beside those that did not end yet.
    """
    attempt = facts.text(f"{_JOBSET}/restart-attempt")
    if not attempt:
        return UNKNOWN
    return Generation(f"{facts.text(f'{_JOBSET}/jobset-uid')}/{attempt}")


def _leader_of_group(facts: _Facts) -> Generation:
    """Return the leader of a group, or the StatefulSet of the workers of one leader.

    A leader is made again at once. Its pod owned the StatefulSet of the old workers,
    which the garbage collector deletes seconds later, and no label tells these apart.
    """
    if facts.text(f"{_LWS}/worker-index") == "0":
        return Generation(facts.meta.uid)
    return Generation(facts.owner.uid if facts.owner else "", follows=True)


def _minimum_of(facts: _Facts) -> str:
    """Return kind and name of the controller of a pod with a least number.

    The ReplicaSets of a Deployment, or of a Rollout of Argo, are one job: with a
    rolling update, each new pod joins those that still run.
    """
    owner = facts.owner
    if owner is None or not facts.text(MIN_AVAILABLE):
        return ""
    revision = facts.text(*_REVISIONS) if owner.kind == "ReplicaSet" else ""
    return f"{owner.kind}.{owner.name.removesuffix(f'-{revision}')}"


def _set_of(facts: _Facts, _name: str) -> str:
    """Return the API path of the StatefulSet that owns a pod; "" if none does."""
    owner = facts.owner
    if owner is None or owner.kind != "StatefulSet":
        return ""
    return _at("apps/v1", "statefulsets")(facts, owner.name)


def _group_of_set(facts: _Facts) -> str:
    name, index = facts.text(f"{_LWS}/name"), facts.text(f"{_LWS}/group-index")
    return f"{name}/{index or '0'}" if name else ""


def _ray_cluster(facts: _Facts) -> str:
    """Return the RayCluster of a head or worker; "" for all other pods."""
    name, kind = facts.text(f"{_RAY}/cluster"), facts.text(f"{_RAY}/node-type")
    return name if kind in ("head", "worker") else ""


def _group_of_kueue(facts: _Facts) -> str:
    """Return the pod group of Kueue that a pod is of; "" if it is of none.

    Kueue refuses groups without a number, so such a mark is not Kueue's. The pods of a
    serving group, such as those of a StatefulSet, do not need each other.
    """
    is_serving = facts.annotations.get(_POD_GROUP_SERVES) == "true"
    if is_serving or not facts.number(_POD_GROUP_SIZE):
        return ""
    return facts.annotations.get(_POD_GROUP) or facts.labels.get(_POD_GROUP, "")


def _is_admitted_early(facts: _Facts) -> bool:
    """Return whether Kueue admits the group of a pod before all its pods exist."""
    return facts.annotations.get(_POD_GROUP_IS_FAST) == "true"


def _name_of_pair(facts: _Facts) -> str:
    """Return the job's name; "?" for a size without a name; "" without both."""
    return facts.text(JOB) or ("?" if facts.text(JOB_SIZE) else "")


def _problem_of_pair(facts: _Facts) -> str:
    """Return why a pod with one of our two annotations is of no job; "" if it is."""
    return "" if facts.text(JOB) else describe_missing_job(JOB)


def _indexed_job(facts: _Facts) -> str:
    if facts.number(f"{_BATCH}/job-completion-index") is None:
        return ""
    return facts.text(f"{_BATCH}/job-name", "job-name")


ROWS: tuple[Row, ...] = (
    Row(
        kind="Job of pods",
        marks=(JOB, JOB_SIZE),
        name=_name_of_pair,
        problem=_problem_of_pair,
        size=(JOB_SIZE,),
        numbers=(f"{_BATCH}/job-completion-index",),
        generation=_of_controller,
        source="docs/jobs.md",
    ),
    Row(
        kind="Minimum",
        marks=(MIN_AVAILABLE,),
        name=_minimum_of,
        size=(MIN_AVAILABLE,),
        is_least=True,
        path=_set_of,
        numbers=("apps.kubernetes.io/pod-index",),
        generation=_of_controller,
        source="MindCluster ascend-for-volcano, schedule_minAvailable",
    ),
    Row(
        kind="Training job",
        marks=(f"{_KUBEFLOW}/job-name",),
        path=_operators_job,
        role=(f"{_KUBEFLOW}/replica-type", f"{_KUBEFLOW}/job-role"),
        numbers=(f"{_KUBEFLOW}/replica-index",),
        lone_index="0",  # the launcher of an MPIJob
        generation=_of_controller,
        source="kubeflow/training-operator pkg/apis/kubeflow.org/v1/common_types.go; "
        "kubeflow/mpi-operator; MindCluster ascend-operator",
    ),
    Row(
        kind="JobSet",
        marks=(f"{_JOBSET}/jobset-name",),
        path=_at("jobset.x-k8s.io/v1alpha2", "jobsets"),
        role=(f"{_JOBSET}/replicatedjob-name",),
        numbers=(f"{_JOBSET}/job-index", f"{_BATCH}/job-completion-index"),
        generation=_attempt_of_jobset,
        source="kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go",
    ),
    Row(
        kind="LeaderWorkerSet",
        marks=(f"{_LWS}/name",),
        name=_group_of_set,
        size=(f"{_LWS}/size",),
        counts_all=True,
        path=lambda facts, name: _at("leaderworkerset.x-k8s.io/v1", "leaderworkersets")(
            facts, name.partition("/")[0]
        ),
        numbers=(f"{_LWS}/worker-index",),
        generation=_leader_of_group,
        source="kubernetes-sigs/lws api/leaderworkerset/v1",
    ),
    Row(
        kind="Volcano Job",
        marks=(f"{_VOLCANO}/job-name",),
        path=_at("batch.volcano.sh/v1alpha1", "jobs"),
        role=(f"{_VOLCANO}/task-spec",),
        numbers=(f"{_VOLCANO}/task-index",),
        generation=_of_controller,
        source="volcano-sh/apis pkg/apis/batch/v1alpha1/labels.go",
    ),
    Row(
        kind="RayCluster",
        marks=(f"{_RAY}/cluster",),
        name=_ray_cluster,
        path=_at("ray.io/v1", "rayclusters"),
        role=(f"{_RAY}/group",),
        numbers=(f"{_RAY}/worker-group-replica-index", f"{_RAY}/replica-host-index"),
        generation=_of_controller,
        source="ray-project/kuberay v1.7 ray-operator/controllers/ray/common/pod.go",
    ),
    Row(
        kind="PodGroup of Kubernetes",
        name=lambda facts: facts.group,
        counts_all=True,
        path=_at(f"scheduling.k8s.io/{VERSION}", "podgroups"),
        versions=_NATIVE_VERSIONS,
        numbers=(f"{_BATCH}/job-completion-index",),
        generation=_of_controller,
        source="kubernetes/api v0.36, v0.37 core/v1 PodSchedulingGroup, scheduling/",
    ),
    Row(
        kind="PodGroup",
        marks=("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"),
        counts_all=True,
        path=_at("scheduling.x-k8s.io/v1alpha1", "podgroups"),
        numbers=(f"{_BATCH}/job-completion-index",),
        generation=_of_controller,
        source="kubernetes-sigs/scheduler-plugins apis/scheduling/v1alpha1/types.go",
    ),
    Row(
        kind="PodGroup of Volcano",
        marks=("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
        counts_all=True,
        path=_at("scheduling.volcano.sh/v1beta1", "podgroups"),
        role=(f"{_VOLCANO}/task-spec",),
        numbers=(f"{_VOLCANO}/task-index", f"{_BATCH}/job-completion-index"),
        generation=_of_controller,
        source="volcano-sh/apis pkg/apis/scheduling/v1beta1/labels.go",
    ),
    Row(
        kind="Pod group of Kueue",
        marks=(_POD_GROUP,),
        name=_group_of_kueue,
        size=(_POD_GROUP_SIZE,),
        counts_all=True,
        can_begin_with_one=_is_admitted_early,
        numbers=(
            "kueue.x-k8s.io/pod-group-pod-index",
            f"{_BATCH}/job-completion-index",
        ),
        generation=_of_controller,
        source="kubernetes-sigs/kueue v0.18 pkg/controller/jobs/pod",
    ),
    Row(
        kind="Job",
        marks=(f"{_BATCH}/job-completion-index",),
        name=_indexed_job,
        path=_at("batch/v1", "jobs"),
        numbers=(f"{_BATCH}/job-completion-index",),
        generation=_of_controller,
        source="kubernetes/api v0.36 batch/v1 JobCompletionIndexAnnotation",
    ),
)


_MARKS = frozenset(mark for row in ROWS for mark in row.marks)


def membership(pod: Pod) -> Membership | None:
    """Return the job of a pod and the pod's rank; None if the pod is a job by itself.

    A pod that states a job size below 2 is a job by itself.
    """
    facts = _Facts(pod)
    if not facts.is_marked:
        return None  # most pods of a cluster return here
    for row in ROWS:
        name = row.name(facts) if row.name else facts.text(*row.marks)
        if not name:
            continue
        size = facts.number(*row.size) if row.size else None
        if size is not None and size < 2:
            return None
        path, problem = row.path(facts, name), row.problem(facts)
        if not problem and not path and size is None:
            problem = describe_bad_size(row.size[0], facts.text(*row.size))
        return Membership(
            job=f"{row.kind}/{pod.metadata.namespace}/{name}",
            size=None if problem else size,
            counts_all=row.counts_all,
            is_least=row.is_least,
            can_begin_with_one=row.can_begin_with_one(facts),
            problem=problem,
            size_source=_size_source(row, path, size if row.counts_all else None),
            rank=facts.number(RANK_INDEX),
            order=_order(row, facts),
            index=_index(row, facts),
            generation=row.generation(facts),
        )
    return None


def _size_source(row: Row, path: str, stated: int | None) -> SizeSource | None:
    if not path:
        return None
    return SizeSource(path=path, kind=row.kind, versions=row.versions, stated=stated)


def planned_membership(pod: Pod) -> Membership | None:
    """Return the job with which a pod is planned, and the pod's rank in the job.

    A pod that is a job by itself is planned only if it has the label `tor-affinity`,
    which asks to choose nodes by their leaf switches. With this label, the result is a
    job of one pod. Without it, the result is None.
    """
    place, meta = membership(pod), pod.metadata
    if place is None and asks_leaves(meta.labels or {}):
        job = f"Pod/{meta.namespace}/{meta.name}"
        return Membership(job=job, size=1, rank=_Facts(pod).number(RANK_INDEX))
    return place


def order_of(role: str, number: Number) -> Order:
    """Return the sort key of a pod with this role, in lower case, and number."""
    leads = _LEADING.index(role) if role in _LEADING else len(_LEADING)
    return leads, role, *number


def _order(row: Row, facts: _Facts) -> Order:
    role = facts.text(*row.role).lower() if row.role else ""
    numbers = [facts.number(key) or 0 for key in row.numbers]
    first, second = [*numbers, 0, 0][:2]
    return order_of(role, (first, second))


def _index(row: Row, facts: _Facts) -> str:
    """Return the numbers of a pod as a text; "" if no pod has them to itself.

    A Job without completion indexes may itself be numbered, but not its pods.
    """
    owner, of_job = facts.owner, f"{_BATCH}/job-completion-index"
    if owner and owner.api_version == "batch/v1" and not facts.text(of_job):
        return row.lone_index
    return "/".join(number for key in row.numbers if (number := facts.text(key)))
