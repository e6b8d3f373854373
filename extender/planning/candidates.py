"""Candidate nodes of waiting jobs, and refusals that need not be computed again.

Many pods that ask for leaf switches may wait, each a job by itself and all alike. A
refusal of one of them holds for the others until the cache changes.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from extender.cache.requests import Resources
from scheduler_core.products.columns import Product
from scheduler_core.wire.shapes import Shape

#: (version of the cache, version of the requests in it); both only grow
Version = tuple[int, int]


class Question(NamedTuple):
    """Everything besides the cache that decides whether a one-pod job fits."""

    names: Sequence[str]
    shape: Shape
    requests: Resources
    product: Product | str | None
    #: values of the label and annotation keys that choose networks
    text: tuple[str, ...]


def exclude_names(names: tuple[str, ...], excluded: Collection[str]) -> tuple[str, ...]:
    """Return `names` without the excluded ones.

    Returns `names` itself if `excluded` is empty (the common case).
    """
    return (
        tuple([name for name in names if name not in excluded]) if excluded else names
    )


class CandidateNodes:
    """Nodes that the scheduler offered to each job. Owner: the planner.

    Refusals hold for one version of the cache. The first refusal on another version
    removes all earlier ones.
    """

    def __init__(self) -> None:
        #: {job: nodes last offered to its pods}
        self._names: dict[str, tuple[str, ...]] = {}
        #: {nodes: their first list}; the same nodes are offered in other orders
        self._lists: dict[frozenset[str], tuple[str, ...]] = {}
        #: {job: version on which it was refused}
        self._refused_at: dict[str, Version] = {}
        self._version: Version = (-1, -1)
        #: {question: why the pod does not fit}, all on `_version`
        self._refusals: dict[Question, str] = {}

    @property
    def jobs(self) -> list[str]:
        """Return the jobs that have candidate nodes and wait for a plan."""
        return list(self._names)

    def get(self, job: str) -> tuple[str, ...]:
        """Return the last candidate nodes of a job, in any order; () if it has none."""
        return self._names.get(job, ())

    def put(self, job: str, names: Sequence[str]) -> None:
        """Replace the candidate nodes of a job."""
        self._names[job] = self._lists.setdefault(frozenset(names), tuple(names))

    def drop(self, job: str) -> None:
        """Remove a job that no longer waits for a plan."""
        self._names.pop(job, None)

    def record_refusal(
        self, job: str, question: Question | None, text: str, version: Version
    ) -> None:
        """Remember that a job did not fit, and the refusal for equal questions.

        Args:
            job: Key of the job.
            question: Of a one-pod job. None: the refusal holds for this job only.
            text: Why the job does not fit.
            version: Version of the cache on which the job was planned.
        """
        self._refused_at[job] = version
        if version != self._version:
            self._version = version
            self._refusals.clear()
        if question is not None:
            self._refusals[question] = text

    def was_tried(self, job: str, version: Version) -> bool:
        """Return whether a job was refused on this version of the cache."""
        return self._refused_at.get(job) == version

    def known_refusal(self, question: Question, version: Version) -> str | None:
        """Return the refusal of an equal question on this version, if there is one."""
        return self._refusals.get(question) if version == self._version else None

    def retain(self, jobs: Collection[str]) -> None:
        """Remove all jobs except these."""
        self._names = {job: n for job, n in self._names.items() if job in jobs}
        self._refused_at = {
            job: n for job, n in self._refused_at.items() if job in jobs
        }
        used_ids = {id(names) for names in self._names.values()}
        self._lists = {key: n for key, n in self._lists.items() if id(n) in used_ids}
