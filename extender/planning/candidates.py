"""Which nodes were jobs offered that wait, and what has been asked for them in vain?

Many pods that ask for leaf switches may wait, alike and each a job by itself. What one
of them has asked in vain no other need ask until something has changed.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from extender.cache.requests import Ask
from scheduler_core.products.columns import Product
from scheduler_core.wire.shapes import Shape

#: Grows with whatever a plan depends on.
Version = tuple[int, int]


class Question(NamedTuple):
    """All that decides whether a pod by itself has room, besides what is known."""

    names: Sequence[str]
    shape: Shape
    ask: Ask
    wanted: Product | str | None
    #: what it says of the network
    said: tuple[str, ...]


def without(names: tuple[str, ...], some: Collection[str]) -> tuple[str, ...]:
    """The nodes that are not among those; mostly there are none to leave out."""
    return tuple([name for name in names if name not in some]) if some else names


class Offers:
    """What was offered to whom. Owner: the planner, which forgets jobs that have gone.

    The source of truth of answers is the cache, of the version on which they were
    given: the first question on another version ends them all.
    """

    def __init__(self) -> None:
        """Nothing was offered."""
        #: {job: the nodes that were offered to its pods last}
        self._names: dict[str, tuple[str, ...]] = {}
        #: {nodes: the first list of them}: they come again, in other orders
        self._lists: dict[frozenset[str], tuple[str, ...]] = {}
        #: {job: version on which it had no room}
        self._tried: dict[str, Version] = {}
        self._version: Version = (-1, -1)
        #: {question: why there is no room}, of that version
        self._in_vain: dict[Question, str] = {}

    @property
    def jobs(self) -> list[str]:
        """Those that were offered nodes and wait."""
        return list(self._names)

    def of(self, job: str) -> tuple[str, ...]:
        """The nodes that a job was offered last, in any order."""
        return self._names.get(job, ())

    def put(self, job: str, names: Sequence[str]) -> None:
        """Note what a job is offered."""
        self._names[job] = self._lists.setdefault(frozenset(names), tuple(names))

    def end(self, job: str) -> None:
        """A job waits no more."""
        self._names.pop(job, None)

    def try_in_vain(
        self, job: str, question: Question | None, said: str, version: Version
    ) -> None:
        """Note that a job had no room, and what that says of others.

        Args:
            job: Which.
            question: Of a pod by itself; None: of its answer nothing follows.
            said: Why there was none.
            version: On which.
        """
        self._tried[job] = version
        if version != self._version:
            self._version = version
            self._in_vain.clear()
        if question is not None:
            self._in_vain[question] = said

    def was_tried(self, job: str, version: Version) -> bool:
        """Whether a job had no room on this version."""
        return self._tried.get(job) == version

    def why_not(self, question: Question, version: Version) -> str | None:
        """Why there is no room, if that has been asked on this version."""
        return self._in_vain.get(question) if version == self._version else None

    def forget(self, known: Collection[str]) -> None:
        """Forget all jobs but these."""
        self._names = {job: n for job, n in self._names.items() if job in known}
        self._tried = {job: n for job, n in self._tried.items() if job in known}
        used = {id(names) for names in self._names.values()}
        self._lists = {key: n for key, n in self._lists.items() if id(n) in used}
