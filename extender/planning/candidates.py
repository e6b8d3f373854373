"""Candidate nodes of waiting jobs, and stored refusals of jobs.

Many one-pod jobs with equal requests and candidate nodes may wait at the same time. If
one of them does not fit, none of them fits until the cache changes. So the refusal of
the first job is stored and given to the others, which are not planned.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from extender.cache.requests import Resources
from extender.refusals import Refusal
from scheduler_core.products.columns import Product
from scheduler_core.wire.shapes import Shape

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
        #: {job: nodes last offered to its pods}
        self._names: dict[str, tuple[str, ...]] = {}
        #: {nodes: their first list}; the same nodes are offered in other orders
        self._lists: dict[frozenset[str], tuple[str, ...]] = {}
        #: {job: version on which it was refused}
        self._refused_at: dict[str, Version] = {}
        self._version: Version = (-1, -1)
        #: {question: why the pod does not fit}, all on `_version`
        self._refusals: dict[Question, Refusal] = {}

    @property
    def jobs(self) -> list[str]:
        """Return the keys of the jobs that have candidate nodes."""
        return list(self._names)

    def get(self, job: str) -> tuple[str, ...]:
        """Return the nodes that were offered to a job most recently.

        They are in any order. Empty if no nodes are stored for the job.
        """
        return self._names.get(job, ())

    def put(self, job: str, names: Sequence[str]) -> None:
        """Store the nodes offered to a job, in place of those stored before.

        Args:
            names: Names of the nodes. To save memory, jobs with the same nodes share
                one tuple.
        """
        self._names[job] = self._lists.setdefault(frozenset(names), tuple(names))

    def drop(self, job: str) -> None:
        """Remove the candidate nodes of a job that no longer waits for a plan."""
        self._names.pop(job, None)

    def record_refusal(
        self, job: str, question: Question | None, refusal: Refusal, version: Version
    ) -> None:
        """Record that a job did not fit on a version of the cache.

        Args:
            question: What a one-pod job asks for. `refusal` is stored as the answer to
                all equal questions. None if no other job may get it.
        """
        self._refused_at[job] = version
        if version != self._version:
            self._version = version
            self._refusals.clear()
        if question is not None:
            self._refusals[question] = refusal

    def was_tried(self, job: str, version: Version) -> bool:
        """Return whether the latest refusal of a job is for cache version `version`."""
        return self._refused_at.get(job) == version

    def known_refusal(self, question: Question, version: Version) -> Refusal | None:
        """Return the refusal stored for an equal question; None if there is none."""
        return self._refusals.get(question) if version == self._version else None

    def retain(self, jobs: Collection[str]) -> None:
        """Remove candidate nodes and latest refusal of each job that is not in `jobs`.

        Refusals stored by question stay, since other jobs may have the same question.
        """
        self._names = {job: n for job, n in self._names.items() if job in jobs}
        self._refused_at = {
            job: n for job, n in self._refused_at.items() if job in jobs
        }
        used_ids = {id(names) for names in self._names.values()}
        self._lists = {key: n for key, n in self._lists.items() if id(n) in used_ids}
