"""Choose the pods of a job that go because of a fault: the fewest that find places.

A job allows one or two rungs of a ladder: its fault pods, or all its pods. The lowest
rung is taken whose pods have places on the chips that are free once they have gone. So
no pod goes in vain.

A healthy pod that goes returns to its node and chips if the places of the others leave
them to it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple

#: Groups of healthy pods of which each is tried at home. Each costs a plan.
_TRIES = 24


class Rung(StrEnum):
    """Pods of a job that go together, the fewest first."""

    PODS = "the fault pods of its job"
    JOB = "all pods of its job"


class Place(NamedTuple):
    """Node and chips of a pod."""

    node: str
    #: mask
    chips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultJob:
    """A job some of whose pods have chips with faults."""

    #: {pod: node and chips that it has}, by rank
    homes: Mapping[str, Place]
    #: fault pods, at least one
    faulty: frozenset[str]
    #: the lowest first; at least one
    rungs: tuple[Rung, ...]
    #: healthy pods that end with the fault pods, whatever the rung
    followers: frozenset[str] = frozenset()
    #: whether the job goes on without its fault pods
    can_lose: bool = False


#: pods -> their places once they have gone, while all other pods of the job are at
#: home; or what is missing
_FitPods = Callable[[frozenset[str]], Mapping[str, Place] | str]
#: (whether the nodes of the faults are avoided, pods) -> likewise. The chips with the
#: faults are no place.
Fit = Callable[[bool, frozenset[str]], Mapping[str, Place] | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Pods that go, and the places that they get."""

    rung: Rung
    #: fault pods first, then by descending rank
    leaving: tuple[str, ...]
    #: {pod: place} of those that go
    places: Mapping[str, Place]
    #: those that get the place which they had
    returning: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Fault pods that go without a place: their job goes on without them."""

    leaving: tuple[str, ...]
    #: why they have no place
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpare:
    """No rung that the job allows has places."""

    #: what the lowest rung lacks
    missing: str


def choose(job: FaultJob, fit: Fit) -> Move | Loss | NoSpare:
    """Choose the pods of a job that go, and their places.

    Nodes with faults are avoided if the same rung fits without them.

    Args:
        fit: Finds places; it is asked as seldom as possible.

    Cost:
        One plan if a rung fits at once; two for each rung without places. Where only a
        whole job fits whose healthy pods cannot all stay, up to `_TRIES` more.
    """
    missing = ""
    for rung in _rungs(job):
        for avoids in (True, False):
            move = _move(job, rung, partial(fit, avoids))
            if isinstance(move, Move):
                return move
            missing = missing or move
    if job.can_lose:
        return Loss(leaving=_order(job, job.faulty), missing=missing)
    return NoSpare(missing=missing)


def _rungs(job: FaultJob) -> Sequence[Rung]:
    """Return the rungs to try; one, if they are the same pods."""
    is_one = job.can_lose or _lowest(job) == job.homes.keys()
    return (Rung.PODS,) if is_one else job.rungs


def _move(job: FaultJob, rung: Rung, fit: _FitPods) -> Move | str:
    """Return the move of a rung, or what is missing if all others are at home."""
    places = fit(job.faulty)
    leaving = _lowest(job) if rung is Rung.PODS else frozenset(job.homes)
    if isinstance(places, str) and leaving != job.faulty:
        all_places = fit(leaving)
        if not isinstance(all_places, str):
            places = _keep_homes(job, leaving, all_places, fit)
    if isinstance(places, str):
        return places
    homes = {pod: job.homes[pod] for pod in leaving - places.keys()}
    return Move(
        rung=rung,
        leaving=_order(job, leaving),
        places=homes | dict(places),
        returning=frozenset(homes),
    )


def _lowest(job: FaultJob) -> frozenset[str]:
    """Return the fewest pods that go together."""
    return job.faulty | job.followers


def _keep_homes(
    job: FaultJob,
    leaving: frozenset[str],
    places: Mapping[str, Place],
    fit: _FitPods,
) -> Mapping[str, Place]:
    """Return places in which as many healthy pods as can be found are at home.

    Halves of the pods are tried, then halves of the halves that do not fit.

    Args:
        places: Places of all pods that leave.
    """
    away = leaving
    healthy = [pod for pod in job.homes if pod in leaving - job.faulty]
    middle = len(healthy) // 2
    groups = [healthy[middle:], healthy[:middle]]  # the lowest ranks are tried first
    tries = 0
    while groups and tries < _TRIES:
        group = groups.pop()
        if not group:
            continue
        tries += 1
        others = fit(away.difference(group))
        if not isinstance(others, str):
            away, places = away.difference(group), others
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return places


def _order(job: FaultJob, pods: Collection[str]) -> tuple[str, ...]:
    """Return pods in the order in which they go: fault pods first, rank 0 last."""
    descending = [pod for pod in reversed(list(job.homes)) if pod in pods]
    return tuple(sorted(descending, key=lambda pod: pod not in job.faulty))
