"""Which jobs can be served at all: the rules over all pods of a job.

What one pod may have is said by its row (`chips.why_not`); here stands what the pods
must keep together. A problem is a value with a text for whoever described the job;
everything that is wrong is said at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from scheduler_core.products.columns import JobRule, Product


class Profile(StrEnum):
    """How strict the rules over whole jobs are; the value is the setting's word."""

    #: as the documents that the product was created from
    SEED = "seed"
    #: the Atlas 800's training jobs may be of any number of pods with any legal count
    PER_POD = "per-pod"


class Fault(StrEnum):
    """What is wrong with a job; the value is its label in metrics."""

    NO_ROW = "no-row"
    PODS_MISSING = "pods-missing"
    PODS_TERMINATING = "pods-terminating"
    COUNTS_CONTRADICT = "counts-contradict"
    ILLEGAL_COUNT = "illegal-count"
    JOB_RULE = "job-rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a job."""

    fault: Fault
    text: str


class Pod(NamedTuple):
    """One pod of a job, as far as rules over the job ask: a tuple, like `Placement`."""

    name: str
    #: chips that it occupies; 0 is none
    chips: int
    #: whether it has been told to end
    terminating: bool = False
    #: whether it says that it needs no chips although it is of such a job
    excused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The pods of one job that exist, and what is said of them."""

    row: Product | None
    pods: tuple[Pod, ...]
    #: how many pods must run at once; None is all that exist
    min_available: int | None = None
    #: how many pods the job says that it has; None is not said
    replicas: int | None = None
    #: chips that the job says that it asks for in all; None is not said
    total_chips: int | None = None
    #: chips of a logical SuperPoD; None is the whole job
    sp_block: int | None = None
    #: nodes of a physical SuperPoD
    superpod_size: int = 48
    #: whether a logical SuperPoD may be spread over physical ones if it must
    soft_superpods: bool = False

    @property
    def npu_pods(self) -> tuple[Pod, ...]:
        """Those that ask for chips."""
        return tuple(pod for pod in self.pods if pod.chips)

    @property
    def chips(self) -> int:
        """Chips of all pods that exist."""
        return sum(pod.chips for pod in self.pods)


def problems(job: Job, profile: Profile = Profile.SEED) -> tuple[Problem, ...]:
    """Everything that is wrong with a job; empty when it may be placed.

    Args:
        job: A gang, or a pod that is its own job.
        profile: How strict to be.

    Source:
        Node Affinity K8s Scheduling Algorithm Design, "Resource Application
        Constraints"; MindCluster ascend-for-volcano, job validation.
    """
    if job.row is None:
        text = "no kind of server that we know serves such a job"
        return (Problem(fault=Fault.NO_ROW, text=text),)
    found = [*_completeness(job), *_contradictions(job), *_counts(job, job.row)]
    if not found and (profile is Profile.SEED or job.row.job_rule not in _RELAXED):
        found = [
            Problem(fault=Fault.JOB_RULE, text=text)
            for text in _RULES[job.row.job_rule](job, job.row)
        ]
    return tuple(found)


def rank_to_write(
    rank: int, *, written: str, owner_kind: str, of_minimum: bool
) -> str | None:
    """The value of `hccl/rankIndex` that a pod is to get, or None.

    Operators that number their pods write it themselves; for pods that nobody numbers
    the scheduler does.

    Args:
        rank: The pod's number in its job, from 0.
        written: What stands there already; "" is nothing.
        owner_kind: The kind of the pod's owner; "" when it has none.
        of_minimum: Whether the job is a gang by `huawei.com/schedule_minAvailable`.
    """
    is_ours = owner_kind == "ReplicaSet" or of_minimum
    return str(rank) if is_ours and not written else None


def _completeness(job: Job) -> Iterator[Problem]:
    ending = [pod.name for pod in job.pods if pod.terminating]
    if ending:
        text = f"still ending: {_named(ending)}"
        yield Problem(fault=Fault.PODS_TERMINATING, text=text)
    needed = max(job.min_available or 0, job.replicas or 0)
    there = len(job.pods)
    if there < needed:
        text = f"{needed - there} of {needed} pods do not exist yet"
        yield Problem(fault=Fault.PODS_MISSING, text=text)


def _contradictions(job: Job) -> Iterator[Problem]:
    said = [
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
    for is_so, text in said:
        if is_so:
            yield Problem(fault=Fault.COUNTS_CONTRADICT, text=text)


def _counts(job: Job, row: Product) -> Iterator[Problem]:
    refused: dict[int, list[str]] = {}
    for pod in job.npu_pods:
        if pod.chips not in row.ways:
            refused.setdefault(pod.chips, []).append(pod.name)
    for count, names in refused.items():
        article = "an" if row.name.startswith("A") else "a"
        yield Problem(
            fault=Fault.ILLEGAL_COUNT,
            text=f"a pod cannot have {count} chips of {article} {row.name}: "
            f"{_named(names)}",
        )


def _whole_nodes(job: Job, row: Product) -> Iterator[str]:
    """Up to a whole node one pod; more as so many whole nodes."""
    node, pods = row.chip_count, job.npu_pods
    if len(pods) > 1 and job.chips <= node:
        yield f"up to {node} chips must be one pod, found {len(pods)} pods"
    elif len(pods) > 1:
        small = [pod.name for pod in pods if pod.chips != node]
        if small:
            yield (
                f"a job of more than {node} chips needs {node} for each pod: "
                f"{_named(small)}"
            )


def _nothing(_job: Job, _row: Product) -> Iterator[str]:
    return iter(())


def _even(job: Job, _row: Product) -> Iterator[str]:
    """One chip only alone; else even counts, and none only for who says so."""
    yield from _unexcused(job)
    odd = [pod.name for pod in job.npu_pods if pod.chips % 2]
    if odd and (len(job.npu_pods), job.chips) != (1, 1):
        yield f"an odd number of chips only as a job of one chip: {_named(odd)}"


def _one_pod(job: Job, _row: Product) -> Iterator[str]:
    if len(job.npu_pods) > 1:
        yield f"distributed inference is one pod, found {len(job.npu_pods)}"


def _superpod(job: Job, row: Product) -> Iterator[str]:
    """Whole nodes that fill logical SuperPoDs; a single pod may be smaller."""
    yield from _unexcused(job)
    node, pods, block = row.chip_count, job.npu_pods, job.sp_block
    if not pods:
        yield "no pod asks for chips"
        return
    if block is not None:
        yield from _block(job, node, block)
    if len(pods) > 1:
        small = [pod.name for pod in pods if pod.chips != node]
        if small:
            yield f"each pod of a SuperPoD's job needs {node} chips: {_named(small)}"


def _block(job: Job, node: int, block: int) -> Iterator[str]:
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


def _unexcused(job: Job) -> Iterator[str]:
    idle = [pod.name for pod in job.pods if not pod.chips and not pod.excused]
    if idle:
        yield f"no chips are asked for, and nothing says that none are: {_named(idle)}"


_RULES: dict[JobRule, Callable[[Job, Product], Iterator[str]]] = {
    JobRule.WHOLE_NODES: _whole_nodes,
    JobRule.EACH_POD: _nothing,
    JobRule.EVEN: _even,
    JobRule.ONE_POD: _one_pod,
    JobRule.SUPERPOD: _superpod,
}
#: rules that the profile `per-pod` does not ask for
_RELAXED = frozenset({JobRule.WHOLE_NODES})
#: pods that are named; of more only the number is said
_NAMED = 3


def _named(names: list[str]) -> str:
    more = len(names) - _NAMED
    listed = ", ".join(sorted(names)[:_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed
