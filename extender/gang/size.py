"""Read from a job's API object, such as a JobSet, how many pods with NPUs the job has.

JobSets, LeaderWorkerSets, Volcano Jobs, RayClusters, Jobs and the jobs of training
operators contain pod templates. Pods without NPUs (an MPI launcher, a parameter server)
can thus be left out. PodGroups state only how many pods must run together; that number
includes pods without NPUs.

An elastic job may run with fewer pods than it has: `Size.least` of `Size.count`. Some
controllers make pods only when others are ready, such as the workers of a leader
(`Followers`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from extender.gang.parts import (
    LEAST,
    LEAST_OF_PARTS,
    READERS,
    Division,
    Number,
    Object,
    Part,
    all_of,
    asks_for,
    inner,
    number_of,
    read_worker_set,
)
from scheduler_core.wire.annotations import parse_count


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
    #: of each role whose pods are divided: those of a unit hold chips together
    divisions: tuple[Division, ...] = ()
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
    if kind in LEAST:
        return Size(count=None, least=LEAST[kind](job), counts_all=True)
    asked = frozenset(resources)
    read = READERS.get(kind)
    if read is read_worker_set and stated is not None:
        read = partial(read_worker_set, stated=stated)
    parts = list(read(inner(job))) if read is not None else []
    ours = [part for part in parts if asks_for(part.template, asked)]
    if not ours:
        return None
    stages = _split_stages(parts, {part.name for part in ours})
    least = LEAST_OF_PARTS.get(kind, all_of)(job, parts) if len(stages) == 1 else None
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
    parts: Sequence["Part"], asked: frozenset[str], least: int | None
) -> Size:
    """Return the size of parts of a job that are planned together.

    Args:
        least: How many pods of the parts must run; None: as many as all of them need.
    """
    ours = [part for part in parts if asks_for(part.template, asked)]
    size = _counted(parts, ours, all_of(None, parts) if least is None else least)
    later = _names_of_later(parts, {part.name for part in ours})
    followers = tuple(
        Followers(role=part.role, numbers=part.numbers, template=part.template)
        for part in ours
        if part.name in later
    )
    divisions = tuple(part.division for part in ours if part.division)
    return replace(size, followers=followers, divisions=divisions)


def _split_stages(
    parts: Sequence["Part"], ours: Collection[str]
) -> dict[str, list["Part"]]:
    """Return {name of a stage: its parts}, the first stage first, named "".

    A part begins a stage if it is made when a part with NPUs has completed. A part that
    is made when another is ready, or one without NPUs has completed, is of its stage.

    Args:
        ours: Names of the parts that ask for NPUs.
    """
    stage_of: dict[str, str] = {}
    stages: dict[str, list[Part]] = {"": []}
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
    status = inner(job, "status")
    failed = count_indexes(status.get("failedIndexes"))
    return number_of(status, "succeeded", 0) + failed


def count_indexes(text: object) -> int:
    """Return how many indexes a text such as "1,3-5,7" lists; 0 if it is malformed."""
    if not isinstance(text, str):
        return 0
    ends = [part.partition("-")[::2] for part in text.split(",")]
    if None in map(parse_count, (end for pair in ends for end in pair if end)):
        return 0
    return sum(int(last or first) - int(first) + 1 for first, last in ends if first)


def _names_of_later(parts: Sequence[Part], ours: Collection[str]) -> set[str]:
    """Return the names of the parts that begin when one of the parts `ours` is ready.

    A part begins also when parts are ready, or have completed, that themselves begin
    so.
    """
    later: set[str] = set()
    for _ in parts:
        begun = later.union(ours)
        later |= {p.name for p in parts if (p.after | p.completed) & begun}
    return later


def _counted(parts: Sequence[Part], ours: Sequence[Part], least: int) -> Size:
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
