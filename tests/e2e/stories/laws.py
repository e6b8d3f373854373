"""Laws of jobs, asked of lives of pods.

Pure. Each pod of these jobs takes a whole node, so a node is free if no pod has it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.e2e.stories.lives import NEVER, Life

#: From the last thing that a pod waits for until it is bound.
WITHIN_S = 10.0

#: {node: its labels, and what it offers}
Nodes = Mapping[str, Mapping[str, str]]


class Place(NamedTuple):
    """Where a pod is, and with which chips."""

    node: str
    chips: frozenset[str]


def broken(
    lives: Sequence[Life], nodes: Nodes, now_s: float, *, within_s: float = WITHIN_S
) -> list[str]:
    """Return which laws were broken until now, a sentence each.

    Args:
        lives: Of all pods with NPUs, in the order of their creation.
        nodes: All that there are.
        now_s: No event before it is missing.
        within_s: How long the last step may take.
    """
    return [
        *bound_in_part(lives, now_s, within_s=within_s),
        *chip_twice(lives),
        *rank_twice(lives),
        *late(lives, nodes, now_s, within_s=within_s),
    ]


def bound_in_part(
    lives: Iterable[Life], now_s: float, *, within_s: float = WITHIN_S
) -> Iterator[str]:
    """Yield generations whose first pods were bound and others were not.

    A pod that takes the rank of one that was bound before waits for room alone, and so
    do pods of an elastic job above its least number.
    """
    for generation in _generations(lives):
        first_s = min(each.bound_s for each in generation)
        least = generation[0].least
        is_elastic = least < generation[0].size
        if first_s == NEVER:
            continue
        if is_elastic:
            due_s = first_s + within_s
            count = sum(each.bound_s <= due_s for each in generation)
            if count < least and now_s > due_s:
                yield (
                    f"{generation[0].job} was bound in part: {count} of at least "
                    f"{least} pods within {within_s:g} s of the first, "
                    f"at {first_s:.1f} s"
                )
            continue
        for each in _starters(generation):
            begun_s = max(first_s, each.ungated_s)
            until_s = min(each.bound_s, each.leaves_s, each.ended_s, now_s)
            if until_s > begun_s + within_s:
                yield (
                    f"{each.job} was bound in part: {each.name} had no node "
                    f"{within_s:g} s after {begun_s:.1f} s"
                )


def chip_twice(lives: Iterable[Life]) -> Iterator[str]:
    """Yield pods that had a chip of one node at the same time."""
    for one, other in itertools.combinations(lives, 2):
        common = one.chips & other.chips
        if one.node and one.node == other.node and common and _meet(one, other):
            yield f"{one.name} and {other.name} had {', '.join(sorted(common))}"


def rank_twice(lives: Iterable[Life]) -> Iterator[str]:
    """Yield pods that were bound with one rank of a generation at the same time."""
    for one, other in itertools.combinations(lives, 2):
        is_same = (one.generation, one.rank) == (other.generation, other.rank)
        if one.rank and is_same and _meet(one, other):
            at_s = max(one.bound_s, other.bound_s)
            yield f"{one.job} had rank {one.rank} bound twice at {at_s:.1f} s"


def late(
    lives: Sequence[Life], nodes: Nodes, now_s: float, *, within_s: float = WITHIN_S
) -> Iterator[str]:
    """Yield jobs that waited for nothing and were not bound in time.

    For as long their controllers made no more pods, and there was room all the time
    for all pods that the job was to have.
    """
    times = sorted(_changes(lives, now_s))
    for generation in _generations(lives):
        for begun_s in times:
            end_s = begun_s + within_s
            if end_s >= now_s:
                break
            if any(begun_s < each.created_s <= end_s for each in generation):
                continue
            moments = [at_s for at_s in times if begun_s <= at_s <= end_s]
            waiting = _stuck(generation, moments)
            if waiting and _has_room(waiting, generation, lives, nodes, moments):
                names = ", ".join(each.name for each in waiting)
                yield f"{waiting[0].job} had room from {begun_s:.1f} s: {names}"
                break


def moved_elsewhere(lives: Sequence[Life], kept: Mapping[str, Place]) -> Iterator[str]:
    """Yield pods that were bound elsewhere than where was kept for them.

    Args:
        lives: Of all pods with NPUs, in the order of their creation.
        kept: {UID of a pod that was evicted after a fault: place of the next pod of
            its rank}.
    """
    for number, life in enumerate(lives):
        place = kept.get(life.uid)
        if place is None:
            continue
        for other in lives[number + 1 :]:
            is_next = (other.job, other.rank) == (life.job, life.rank)
            if is_next and other.bound_s != NEVER:
                if (other.node, other.chips) != place:
                    yield (
                        f"{other.name} was bound to {other.node}, and "
                        f"{', '.join(sorted(place.chips))} of {place.node} were kept"
                    )
                break


def ended_as_failed(lives: Iterable[Life], kept: Mapping[str, Place]) -> Iterator[str]:
    """Yield pods that were ended after a fault without the condition for that.

    Args:
        lives: Of all pods with NPUs.
        kept: As in `moved_elsewhere`.
    """
    for life in lives:
        has_gone = min(life.leaves_s, life.ended_s) != NEVER
        if life.uid in kept and has_gone and not life.is_disrupted:
            yield f"{life.name} ended without DisruptionTarget"


def _changes(lives: Iterable[Life], now_s: float) -> set[float]:
    """Return when something changed."""
    found = {
        at_s
        for each in lives
        for at_s in (each.ungated_s, each.bound_s, each.leaves_s, each.ended_s)
    }
    return {at_s for at_s in found if at_s < now_s}


def _stuck(generation: Iterable[Life], moments: Sequence[float]) -> list[Life]:
    """Return pods that waited at all these moments, and for no pod of their rank."""
    return [
        each
        for each in generation
        if all(each.waits(at_s) for at_s in moments)
        and not any(
            other.rank == each.rank and other.rank and other.holds(at_s)
            for other in generation
            for at_s in moments
        )
    ]


def _has_room(
    waiting: Sequence[Life],
    generation: Sequence[Life],
    lives: Sequence[Life],
    nodes: Nodes,
    moments: Sequence[float],
) -> bool:
    """Whether a job had room all the time beside what is kept for others."""
    taken = {e.node for e in lives for at_s in moments if e.holds(at_s)}
    free = {name: nodes[name] for name in nodes if name not in taken}
    now_s = moments[-1]
    if waiting[0].domain:
        return _has_domains(generation, lives, nodes, free, now_s)
    free = {name: free[name] for name in free if _suit(free[name], waiting)}
    needed = max(len(waiting), *(_missing(generation, at_s) for at_s in moments))
    kept = sum(
        _missing(other, now_s)
        for other in _generations(lives)
        if other[0].generation != waiting[0].generation
        and any(_is_bound(e, now_s) for e in other)
        and any(_suit(labels, other) for labels in free.values())
    )
    return needed + kept <= len(free) and _can_match(waiting, free)


def _has_domains(
    generation: Sequence[Life],
    lives: Sequence[Life],
    nodes: Nodes,
    free: Nodes,
    at_s: float,
) -> bool:
    """Whether each unit of a job can have a domain to itself, or its own whole."""
    key = generation[0].domain
    used = {e.unit: nodes[e.node][key] for e in lives if e.domain and e.holds(at_s)}
    missing = {
        each.unit: each.unit_size
        - sum(e.unit == each.unit and e.holds(at_s) for e in generation)
        for each in generation
    }
    room = Counter(labels[key] for labels in free.values())
    if any(room[used[unit]] < n for unit, n in missing.items() if unit in used):
        return False
    wanted = [n for unit, n in missing.items() if unit not in used]
    unused = room.keys() - {*used.values()}
    return any(
        all(room[domain] >= n for domain, n in zip(some, wanted, strict=True))
        for some in itertools.permutations(unused, len(wanted))
    )


def _missing(generation: Sequence[Life], at_s: float) -> int:
    """Return how many pods of a job have no node at a moment."""
    holding = sum(each.holds(at_s) for each in generation)
    return max(0, generation[-1].size - holding)


def _is_bound(life: Life, at_s: float) -> bool:
    return life.holds(at_s) and at_s < life.leaves_s


def _can_match(waiting: Sequence[Life], free: Nodes) -> bool:
    """Whether each of these pods can have a free node of its own."""
    owner: dict[str, Life] = {}

    def place(life: Life, seen: set[str]) -> bool:
        for name, labels in free.items():
            if name not in seen and _suit(labels, [life]):
                seen.add(name)
                if name not in owner or place(owner[name], seen):
                    owner[name] = life
                    return True
        return False

    return all(place(life, set()) for life in waiting)


def _suit(labels: Mapping[str, str], pods: Iterable[Life]) -> bool:
    """Whether one of these pods may have a node with these labels."""
    return any(each.selector.items() <= labels.items() for each in pods)


def _generations(lives: Iterable[Life]) -> list[list[Life]]:
    found: dict[str, list[Life]] = {}
    for each in lives:
        found.setdefault(each.generation, []).append(each)
    return list(found.values())


def _starters(generation: Sequence[Life]) -> Iterator[Life]:
    """Yield pods of the first ranks, each until one had been bound with its rank."""
    if not generation[0].rank:
        yield from generation[: generation[0].least]
        return
    ranks: set[str] = set()
    had: set[str] = set()
    for each in generation:
        ranks.add(each.rank)
        if len(ranks) <= generation[0].least and each.rank not in had:
            yield each
        if each.bound_s != NEVER:
            had.add(each.rank)


def _meet(one: Life, other: Life) -> bool:
    """Whether two pods were bound at the same time."""
    return max(one.bound_s, other.bound_s) < min(one.ended_s, other.ended_s)
