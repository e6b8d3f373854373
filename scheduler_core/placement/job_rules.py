"""Rules over all pods of a job, and the problems of a job that breaks them.

Rules over a single pod belong to its row (`chips.find_reason`).
A job's author gets all problems at once, each with a text.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from scheduler_core.products.columns import JobRule, Product


class Profile(StrEnum):
    """Strictness of the rules over whole jobs; the value is the setting's word."""

    #: the rules of the design documents, without relaxation
    SEED = "seed"
    #: training jobs on Atlas 800 may have any number of pods with any legal count
    PER_POD = "per-pod"


class Fault(StrEnum):
    """Kind of problem of a job; the value is its label in metrics."""

    NO_ROW = "no-row"
    PODS_MISSING = "pods-missing"
    PODS_TERMINATING = "pods-terminating"
    COUNTS_CONTRADICT = "counts-contradict"
    ILLEGAL_COUNT = "illegal-count"
    JOB_RULE = "job-rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem that keeps a job from being placed."""

    fault: Fault
    text: str


class Pod(NamedTuple):
    """Pod of a job as the rules over jobs read it: a tuple, like `Placement`."""

    name: str
    #: chips that the pod occupies, or 0
    chips: int
    #: whether the API server has a deletion timestamp for the pod
    terminating: bool = False
    #: whether the pod declares that it needs no chips in a job that does
    excused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Existing pods of one job, and the counts that the job declares."""

    row: Product | None
    pods: tuple[Pod, ...]
    #: number of pods that must run at once; None is all that exist
    min_available: int | None = None
    #: declared number of pods; None if not declared
    replicas: int | None = None
    #: declared number of chips of all pods; None if not declared
    total_chips: int | None = None
    #: chips of a logical SuperPoD; None for the whole job
    sp_block: int | None = None
    #: number of nodes of a physical SuperPoD
    superpod_size: int = 48
    #: whether a logical SuperPoD may be spread over several physical ones
    soft_superpods: bool = False

    @property
    def npu_pods(self) -> tuple[Pod, ...]:
        """Pods that ask for chips."""
        return tuple(pod for pod in self.pods if pod.chips)

    @property
    def chips(self) -> int:
        """Chips of all pods that exist."""
        return sum(pod.chips for pod in self.pods)


def pods_alike(number: int, chips: int) -> tuple[Pod, ...]:
    """Return a number of pods that ask for as many chips each."""
    return tuple(Pod(name=f"pod-{rank}", chips=chips) for rank in range(number))


def problems(job: Job, profile: Profile = Profile.SEED) -> tuple[Problem, ...]:
    """Return all problems of a job; empty when the job may be placed.

    Args:
        job: Gang, or a pod that is its own job.
        profile: Strictness of the rules.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Resource Application
        Constraints"; MindCluster ascend-for-volcano, job validation.
    """
    if job.row is None:
        text = "no kind of server that we know serves such a job"
        return (Problem(fault=Fault.NO_ROW, text=text),)
    result = [
        *_check_completeness(job),
        *_check_contradictions(job),
        *_check_counts(job, job.row),
    ]
    if not result and (profile is Profile.SEED or job.row.job_rule not in _RELAXED):
        texts = _RULES[job.row.job_rule](job, job.row)
        result = [Problem(fault=Fault.JOB_RULE, text=text) for text in texts]
    return tuple(result)


def choose_rank_annotation(
    rank: int, *, annotation: str, owner_kind: str, of_minimum: bool
) -> str | None:
    """Return the value of `hccl/rankIndex` for the scheduler to write, or None.

    Operators that number their pods write the annotation themselves.
    The scheduler numbers the pods of ReplicaSets and of gangs by minimum.

    Args:
        rank: Number of the pod in its job, from 0.
        annotation: Present value; "" if absent.
        owner_kind: Kind of the pod's owner; "" when the pod has none.
        of_minimum: Whether the job is a gang by `huawei.com/schedule_minAvailable`.
    """
    is_ours = owner_kind == "ReplicaSet" or of_minimum
    return str(rank) if is_ours and not annotation else None


def _check_completeness(job: Job) -> Iterator[Problem]:
    terminating = [pod.name for pod in job.pods if pod.terminating]
    if terminating:
        text = f"still ending: {list_names(terminating)}"
        yield Problem(fault=Fault.PODS_TERMINATING, text=text)
    needed = max(job.min_available or 0, job.replicas or 0)
    existing = len(job.pods)
    if existing < needed:
        text = f"{needed - existing} of {needed} pods do not exist yet"
        yield Problem(fault=Fault.PODS_MISSING, text=text)


def _check_contradictions(job: Job) -> Iterator[Problem]:
    checks = [
        (
            job.replicas is not None
            and job.min_available is not None
            and job.min_available > job.replicas,
            f"{job.min_available} pods must run at once, but it has {job.replicas}",
        ),
        (
            job.replicas is not None and len(job.pods) > job.replicas,
            f"it has {job.replicas} pods, but {len(job.pods)} exist",
        ),
        (
            job.total_chips is not None
            and len(job.pods) == (job.replicas or len(job.pods))
            and job.total_chips != job.chips,
            f"it asks for {job.total_chips} chips, but its pods for {job.chips}",
        ),
    ]
    for fails, text in checks:
        if fails:
            yield Problem(fault=Fault.COUNTS_CONTRADICT, text=text)


def _check_counts(job: Job, row: Product) -> Iterator[Problem]:
    pods_by_count: dict[int, list[str]] = {}
    for pod in job.npu_pods:
        if pod.chips not in row.ways:
            pods_by_count.setdefault(pod.chips, []).append(pod.name)
    for count, names in pods_by_count.items():
        article = "an" if row.name.startswith("A") else "a"
        yield Problem(
            fault=Fault.ILLEGAL_COUNT,
            text=f"a pod cannot have {count} chips of {article} {row.name}: "
            f"{list_names(names)}",
        )


def _check_whole_nodes(job: Job, row: Product) -> Iterator[str]:
    """Demand one pod up to a whole node, and beyond that one whole node per pod."""
    node, pods = row.chip_count, job.npu_pods
    if len(pods) > 1 and job.chips <= node:
        yield f"up to {node} chips must be one pod, found {len(pods)} pods"
    elif len(pods) > 1 and (smaller := [p.name for p in pods if p.chips != node]):
        names = list_names(smaller)
        yield f"a job of more than {node} chips needs {node} for each pod: {names}"


def _check_nothing(_job: Job, _row: Product) -> Iterator[str]:
    return iter(())


def _check_even(job: Job, _row: Product) -> Iterator[str]:
    """Demand even counts, or a job of one chip, and a declaration of idle pods."""
    yield from _check_idle_pods(job)
    odd = [pod.name for pod in job.npu_pods if pod.chips % 2]
    if odd and (len(job.npu_pods), job.chips) != (1, 1):
        yield f"an odd number of chips only as a job of one chip: {list_names(odd)}"


def _check_one_pod(job: Job, _row: Product) -> Iterator[str]:
    if len(job.npu_pods) > 1:
        yield f"distributed inference is one pod, found {len(job.npu_pods)}"


def _check_superpod(job: Job, row: Product) -> Iterator[str]:
    """Demand whole nodes that fill logical SuperPoDs; a single pod may be smaller."""
    yield from _check_idle_pods(job)
    node, pods, block = row.chip_count, job.npu_pods, job.sp_block
    if not pods:
        yield "no pod asks for chips"
        return
    if block is not None:
        yield from _check_block(job, node, block)
    smaller = [pod.name for pod in pods if pod.chips != node]
    if smaller and len(pods) > 1:
        names = list_names(smaller)
        yield f"each pod of a SuperPoD's job needs {node} chips: {names}"


def _check_block(job: Job, node: int, block: int) -> Iterator[str]:
    if block < 1 or (block < node and block != job.chips):
        yield (
            f"sp-block {block}: expected a multiple of the node's {node} chips, or "
            f"all {job.chips} chips of the job"
        )
    elif block >= node and block % node:
        yield f"sp-block {block}: expected a multiple of the node's {node} chips"
    elif block // node > job.superpod_size:
        yield (
            f"sp-block {block}: expected at most {job.superpod_size} nodes, the size "
            f"of a SuperPoD, found {block // node}"
        )
    elif job.chips % block:
        yield f"sp-block {block}: does not divide the {job.chips} chips of the job"


def _check_idle_pods(job: Job) -> Iterator[str]:
    idle = [pod.name for pod in job.pods if not pod.chips and not pod.excused]
    if idle:
        names = list_names(idle)
        yield f"no chips are asked for, and nothing says that none are: {names}"


_RULES: dict[JobRule, Callable[[Job, Product], Iterator[str]]] = {
    JobRule.WHOLE_NODES: _check_whole_nodes,
    JobRule.EACH_POD: _check_nothing,
    JobRule.EVEN: _check_even,
    JobRule.ONE_POD: _check_one_pod,
    JobRule.SUPERPOD: _check_superpod,
}
#: rules that the profile `per-pod` leaves out
_RELAXED = frozenset({JobRule.WHOLE_NODES})
#: number of pods that a text names; it counts the others
_NAMED = 3


def list_names(names: Collection[str]) -> str:
    """Return the first few names as a text, and the number of the others."""
    rest_count = len(names) - _NAMED
    listed = ", ".join(sorted(names)[:_NAMED])
    return f"{listed} and {rest_count} more" if rest_count > 0 else listed
