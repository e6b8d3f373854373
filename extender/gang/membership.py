"""Which job is a pod of, how many pods has that job, and which of them is this one?

Everybody who runs jobs of several pods marks them in a way of their own; here each
way is a row. The first row that knows the pod wins: what a person wrote for us, then
the controllers that say most about a job, then groups of pods that name a number only.

A pod that no row knows is a job by itself: so are the pods of a ReplicaSet, and those
of a Job without completion indexes. If it asks for switch affinity it is planned all
the same, as a job of one: under which leaf it goes depends on the others.

Pure: reads a pod, asks nobody.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kube.objects import OwnerReference, Pod
from scheduler_core.products.lookup import PLAIN, Traits
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.job_kind_marks import RANK_INDEX

#: The plain pair: the job's name within its namespace, and its pods that ask for NPUs.
JOB = "ascend-affinity/job"
JOB_SIZE = "ascend-affinity/job-size"
#: How many of a controller's pods must run at once: makes a gang of any controller's.
MIN_AVAILABLE = "huawei.com/schedule_minAvailable"

_KUBEFLOW = "training.kubeflow.org"
_JOBSET = "jobset.sigs.k8s.io"
_LWS = "leaderworkerset.sigs.k8s.io"
_BATCH = "batch.kubernetes.io"
_VOLCANO = "volcano.sh"
#: API groups of the kinds whose pods the training operators mark alike.
_OPERATORS = ("kubeflow.org/", "mindxdl.gitee.com/")
#: Roles that come before all others: rank 0 is the one whom the others call.
_LEADING = ("master", "chief", "leader", "launcher", "scheduler", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The object that says how many pods a job has."""

    #: on the API server
    path: str
    #: what it is called in sentences
    kind: str


#: By role, those that lead first, then role by role, by number.
Order = tuple[int, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A pod's place in its job."""

    #: "kind/namespace/name", the same of all its pods
    job: str
    #: how many pods the job has, as far as this pod says it itself
    size: int | None = None
    #: whether that number counts pods that ask for no NPUs as well
    counts_all: bool = False
    #: who says it otherwise
    told: Told | None = None
    #: its number as it stands on the pod
    rank: int | None = None
    #: its place among those that have no number
    order: Order = (0, "", 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What planning a whole job asks of one of its pods, besides its chips."""

    #: the pod's
    name: str
    membership: Membership
    #: what tells by which rule the job is served
    traits: Traits = PLAIN
    priority: int = 0
    #: the kind of its controller, or ""
    owner_kind: str = ""


def seat(pod: Pod) -> Seat | None:
    """The pod's seat in its job; None for a pod that needs no plan."""
    found = to_be_planned(pod)
    if found is None:
        return None
    owner = _Facts(pod).owner
    return Seat(
        name=pod.metadata.name,
        membership=found,
        traits=Traits(
            annotations=pod.metadata.annotations or {},
            labels=pod.metadata.labels or {},
            node_selector=pod.spec.node_selector or {},
        ),
        priority=pod.spec.priority or 0,
        owner_kind=owner.kind if owner else "",
    )


class _Facts:
    """What rows look at."""

    def __init__(self, pod: Pod) -> None:
        self.meta = pod.metadata
        self.labels: Mapping[str, str] = pod.metadata.labels or {}
        self.annotations: Mapping[str, str] = pod.metadata.annotations or {}
        group = pod.spec.scheduling_group
        self.group = group.pod_group_name if group else ""

    def said(self, *keys: str) -> str:
        """The first of these that a label or an annotation says; "" is none."""
        for key in keys:
            found = self.labels.get(key) or self.annotations.get(key)
            if found:
                return found
        return ""

    def number(self, *keys: str) -> int | None:
        """The same as a number; what is none is not said."""
        said = self.said(*keys)
        return int(said) if said.isascii() and said.isdigit() else None

    @property
    def owner(self) -> OwnerReference | None:
        owners = self.meta.owner_references or ()
        return next((owner for owner in owners if owner.controller), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way in which pods are marked as one job."""

    #: what such a job is called; also in its key
    kind: str
    #: the job's name, "" if the pod is not marked so
    name: Callable[[_Facts], str]
    #: labels or annotations with the number of pods
    size: tuple[str, ...] = ()
    counts_all: bool = False
    #: where the object is that says the number; "" where none does
    path: Callable[[_Facts, str], str] = lambda _facts, _name: ""
    #: labels or annotations with the pod's role, and with its numbers in order
    role: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    #: who marks pods so
    source: str


def _at(group_version: str, plural: str) -> Callable[[_Facts, str], str]:
    def path(facts: _Facts, name: str) -> str:
        return (
            f"/apis/{group_version}/namespaces/{facts.meta.namespace}/{plural}/{name}"
        )

    return path


def _said(*keys: str) -> Callable[[_Facts], str]:
    return lambda facts: facts.said(*keys)


def _operators_job(facts: _Facts, name: str) -> str:
    """An MPIJob's launcher is of a Job, all other pods are of the kind itself."""
    owner = facts.owner
    if owner is None or not owner.api_version.startswith(_OPERATORS):
        return _at("kubeflow.org/v2beta1", "mpijobs")(facts, name)
    return _at(owner.api_version, f"{owner.kind.lower()}s")(facts, name)


def _minimum_of(facts: _Facts) -> str:
    owner = facts.owner
    if owner is None or not facts.said(MIN_AVAILABLE):
        return ""
    return f"{owner.kind}.{owner.name}"


def _group_of_set(facts: _Facts) -> str:
    name, index = facts.said(f"{_LWS}/name"), facts.said(f"{_LWS}/group-index")
    return f"{name}/{index or '0'}" if name else ""


def _indexed_job(facts: _Facts) -> str:
    if facts.number(f"{_BATCH}/job-completion-index") is None:
        return ""
    return facts.said(f"{_BATCH}/job-name", "job-name")


ROWS: tuple[Row, ...] = (
    Row(
        kind="Job of pods",
        name=_said(JOB),
        size=(JOB_SIZE,),
        numbers=(f"{_BATCH}/job-completion-index",),
        source="docs/jobs.md",
    ),
    Row(
        kind="Minimum",
        name=_minimum_of,
        size=(MIN_AVAILABLE,),
        source="MindCluster ascend-for-volcano, schedule_minAvailable",
    ),
    Row(
        kind="Training job",
        name=_said(f"{_KUBEFLOW}/job-name"),
        path=_operators_job,
        role=(f"{_KUBEFLOW}/replica-type", f"{_KUBEFLOW}/job-role"),
        numbers=(f"{_KUBEFLOW}/replica-index",),
        source="kubeflow/training-operator pkg/apis/kubeflow.org/v1/common_types.go; "
        "kubeflow/mpi-operator; MindCluster ascend-operator",
    ),
    Row(
        kind="JobSet",
        name=_said(f"{_JOBSET}/jobset-name"),
        path=_at("jobset.x-k8s.io/v1alpha2", "jobsets"),
        role=(f"{_JOBSET}/replicatedjob-name",),
        numbers=(f"{_JOBSET}/job-index", f"{_BATCH}/job-completion-index"),
        source="kubernetes-sigs/jobset api/jobset/v1alpha2/jobset_types.go",
    ),
    Row(
        kind="LeaderWorkerSet",
        name=_group_of_set,
        size=(f"{_LWS}/size",),
        counts_all=True,
        path=lambda facts, name: _at("leaderworkerset.x-k8s.io/v1", "leaderworkersets")(
            facts, name.partition("/")[0]
        ),
        numbers=(f"{_LWS}/worker-index",),
        source="kubernetes-sigs/lws api/leaderworkerset/v1",
    ),
    Row(
        kind="Volcano Job",
        name=_said(f"{_VOLCANO}/job-name"),
        path=_at("batch.volcano.sh/v1alpha1", "jobs"),
        role=(f"{_VOLCANO}/task-spec",),
        numbers=(f"{_VOLCANO}/task-index",),
        source="volcano-sh/apis pkg/apis/batch/v1alpha1/labels.go",
    ),
    Row(
        kind="PodGroup of Kubernetes",
        name=lambda facts: facts.group,
        counts_all=True,
        path=_at("scheduling.k8s.io/v1alpha2", "podgroups"),
        numbers=(f"{_BATCH}/job-completion-index",),
        source="kubernetes/api v0.36 core/v1 PodSchedulingGroup, scheduling/v1alpha2",
    ),
    Row(
        kind="PodGroup",
        name=_said("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"),
        counts_all=True,
        path=_at("scheduling.x-k8s.io/v1alpha1", "podgroups"),
        numbers=(f"{_BATCH}/job-completion-index",),
        source="kubernetes-sigs/scheduler-plugins apis/scheduling/v1alpha1/types.go",
    ),
    Row(
        kind="PodGroup of Volcano",
        name=_said("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
        counts_all=True,
        path=_at("scheduling.volcano.sh/v1beta1", "podgroups"),
        role=(f"{_VOLCANO}/task-spec",),
        numbers=(f"{_VOLCANO}/task-index", f"{_BATCH}/job-completion-index"),
        source="volcano-sh/apis pkg/apis/scheduling/v1beta1/labels.go",
    ),
    Row(
        kind="Job",
        name=_indexed_job,
        path=_at("batch/v1", "jobs"),
        numbers=(f"{_BATCH}/job-completion-index",),
        source="kubernetes/api v0.36 batch/v1 JobCompletionIndexAnnotation",
    ),
)


def membership(pod: Pod) -> Membership | None:
    """The pod's place in its job; None for a pod that is a job by itself.

    A job that says that it has one pod is no job of several.
    """
    facts = _Facts(pod)
    for row in ROWS:
        name = row.name(facts)
        if not name:
            continue
        size = facts.number(*row.size) if row.size else None
        if size is not None and size < 2:
            return None
        path = row.path(facts, name)
        return Membership(
            job=f"{row.kind}/{pod.metadata.namespace}/{name}",
            size=size,
            counts_all=row.counts_all,
            told=Told(path=path, kind=row.kind) if path else None,
            rank=facts.number(RANK_INDEX),
            order=_order(row, facts),
        )
    return None


def to_be_planned(pod: Pod) -> Membership | None:
    """The pod's place in the job that it is planned with; None if it needs no plan."""
    found, meta = membership(pod), pod.metadata
    if found is None and asks_leaves(meta.labels or {}):
        job = f"Pod/{meta.namespace}/{meta.name}"
        return Membership(job=job, size=1, rank=_Facts(pod).number(RANK_INDEX))
    return found


def _order(row: Row, facts: _Facts) -> Order:
    role = facts.said(*row.role).lower() if row.role else ""
    leads = _LEADING.index(role) if role in _LEADING else len(_LEADING)
    first, second = [*_numbers(row, facts), 0, 0][:2]
    return leads, role, first, second


def _numbers(row: Row, facts: _Facts) -> Iterator[int]:
    for key in row.numbers:
        yield facts.number(key) or 0
