"""Candidate nodes of waiting jobs, and stored refusals of jobs.

Many one-pod jobs with equal requests and candidate nodes may wait at the same time. If
one of them does not fit, none of them fits until the cache changes. So the refusal of
the first job is stored and given to the others, which are not planned.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.gang.gang import Gang
from extender.planning.units import UnitsOfJobs
from extender.refusals import Refusal
from scheduler_core.products import lookup
from scheduler_core.products.columns import Product
from scheduler_core.products.lookup import SP_BLOCK
from scheduler_core.topology.leaves import TOR_AFFINITY
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import Shape

#: label of a job whose logical SuperPoDs may be spread
SUPERPOD_AFFINITY = "super-pod-affinity"
#: (version of the cache, version of the requests in it); both only grow
Version = tuple[int, int]


class Question(NamedTuple):
    """Properties and candidate nodes of a one-pod job, which decide whether it fits.

    While neither the cache nor the settings change, jobs with equal questions get the
    same answer.
    """

    names: Sequence[str]
    shape: Shape
    requests: Resources
    product: Product | str | None
    #: values of the label and annotation keys that choose networks
    text: tuple[str, ...]


def make_question(cache: Cache, gang: Gang, names: Sequence[str]) -> Question | None:
    """Return the facts about a one-pod job that decide whether the job fits.

    Returns None if the job has several pods or an unknown size. Also None if its pod is
    bound or not in the cache.
    """
    uid = next(iter(gang.members), "")
    pod = cache.pods.get(uid)
    if pod is None or len(gang.members) > 1 or not gang.is_one or gang.bound:
        return None
    traits = gang.members[uid].traits
    return Question(
        names=names,
        shape=pod.shape,
        requests=cache.requests.ask(uid),
        product=lookup.resolve_job(pod.shape.resource, traits),
        text=(
            traits.labels.get(TOR_AFFINITY, ""),
            traits.labels.get(SUPERPOD_AFFINITY, ""),
            traits.annotations.get(SP_BLOCK, ""),
        ),
    )


def queue_key(gang: Gang, pods: Mapping[str, NpuPod]) -> tuple[int, str, str]:
    """Return the sort key of a job in the queue of waiting jobs.

    The key is (-priority, creation time, UID) of one member: the oldest of those with
    the highest priority. The job with the least key is planned first.

    Args:
        pods: {UID: pod}.
    """
    keys = [
        (-member.priority, pods[uid].created, uid)
        for uid, member in gang.members.items()
        if uid in pods
    ]
    return min(keys, default=(0, "", ""))


def exclude_names(names: tuple[str, ...], excluded: Collection[str]) -> tuple[str, ...]:
    """Return the node names in `names` that are not in `excluded`, in the same order.

    Returns `names` itself, not a copy, if `excluded` is empty.
    """
    return (
        tuple([name for name in names if name not in excluded]) if excluded else names
    )


class CandidateNodes:
    """Nodes that the scheduler offered to each waiting job, and refusals of these jobs.

    Only the planner uses it. A refusal is valid only for the version of the cache on
    which the job was planned.
    """

    def __init__(self) -> None:
        #: {job: {kind: nodes last offered to its pods of this kind}}
        self._names: dict[str, dict[str, frozenset[str]]] = {}
        #: jobs that wait for a plan
        self._waiting: dict[str, None] = {}
        #: {nodes: (the first equal set, their first list)}; the same nodes are offered
        #: in other orders
        self._lists: dict[frozenset[str], tuple[frozenset[str], tuple[str, ...]]] = {}
        #: waiting units of all jobs
        self.units = UnitsOfJobs()
        #: {job: version on which it was refused, and UIDs of its whole units then}
        self._refused_at: dict[str, tuple[Version, frozenset[str]]] = {}
        #: version of `_refusals`; none is used for another version
        self._version: Version = (-1, -1)
        #: {question: why the pod does not fit}, all on `_version`
        self._refusals: dict[Question, Refusal] = {}

    @property
    def all_jobs(self) -> list[str]:
        """Return the keys of the jobs that have candidate nodes."""
        return list(self._names)

    @property
    def jobs(self) -> list[str]:
        """Return the keys of the jobs that have candidate nodes and wait for a plan."""
        return list(self._waiting)

    def of_kinds(self, job: str) -> Mapping[str, frozenset[str]]:
        """Return {kind: nodes that were offered to it most recently} of a job."""
        return self._names.get(job, {})

    def get(self, job: str) -> tuple[str, ...]:
        """Return the nodes that were offered to any kind of a job most recently.

        They are in any order. Empty if no nodes are stored for the job.
        """
        lists = tuple(dict.fromkeys(self.of_kinds(job).values()))
        if len(lists) > 1:
            return tuple(frozenset.union(*lists))
        return self._lists[lists[0]][1] if lists else ()

    def put(self, job: str, kind: str, names: Sequence[str]) -> None:
        """Store the nodes offered to a kind of a job, in place of those before.

        Args:
            names: Names of the nodes. To save memory, jobs with the same nodes share
                one tuple.
        """
        nodes = frozenset(names)
        known = self._lists.get(nodes)
        if known is None:
            known = self._lists[nodes] = nodes, tuple(names)
        self._names.setdefault(job, {})[kind] = known[0]

    def wait(self, job: str) -> None:
        """Mark a job as waiting for a plan."""
        self._waiting[job] = None

    def drop(self, job: str) -> None:
        """Mark a job as no longer waiting for a plan; its candidate nodes stay.

        If its plan fails, the job is planned again without a question about each kind.
        """
        self._waiting.pop(job, None)

    def record_refusal(
        self,
        gang: Gang,
        question: Question | None,
        refusal: Refusal,
        version: Version,
    ) -> None:
        """Record that a job did not fit on a version of the cache.

        Args:
            question: What a one-pod job asks for. `refusal` is stored as the answer to
                all equal questions. None if no other job may get it.
        """
        self._refused_at[gang.job] = version, self.units.read(gang).whole
        if version != self._version:
            self._version = version
            self._refusals.clear()
        if question is not None:
            self._refusals[question] = refusal

    def was_tried(self, gang: Gang, version: Version) -> bool:
        """Return whether the latest refusal of a job is for cache version `version`.

        A pod that came since changes nothing, unless it makes a unit whole.
        """
        refused_at, before = self._refused_at.get(gang.job, (None, frozenset()))
        if refused_at != version:
            return False
        whole = self.units.read(gang).whole
        return whole is before or whole == before

    def known_refusal(self, question: Question, version: Version) -> Refusal | None:
        """Return the refusal stored for an equal question; None if there is none."""
        return self._refusals.get(question) if version == self._version else None

    def retain(self, jobs: Collection[str]) -> None:
        """Remove candidate nodes and latest refusal of each job that is not in `jobs`.

        Refusals stored by question stay, since other jobs may have the same question.
        """
        self.units.retain(jobs)
        self._names = {job: n for job, n in self._names.items() if job in jobs}
        self._waiting = {job: None for job in self._waiting if job in jobs}
        self._refused_at = {
            job: n for job, n in self._refused_at.items() if job in jobs
        }
        used = {nodes for lists in self._names.values() for nodes in lists.values()}
        self._lists = {nodes: n for nodes, n in self._lists.items() if nodes in used}
