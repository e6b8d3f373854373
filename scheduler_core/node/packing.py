"""Whether pods of several sizes fit together, found exactly.

Laying the largest pods first is enough where it cannot matter which node or group
takes one (`is_greedy_exact`). Where it can, the ways in which each kind of node can be
filled are combined node by node, and what has been reached is remembered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from itertools import product as every

from scheduler_core.node import chips
from scheduler_core.node.chip_mask import lowest
from scheduler_core.node.layouts import LAYOUTS
from scheduler_core.products.columns import Product, Way

#: combinations of nodes and pods that are tried for a job of more than `EXACT_UP_TO`
#: pods; each takes about a microsecond
BOUND = 200_000
#: pods of a job up to which the search has no bound
EXACT_UP_TO = 12

#: how many pods of each size, in the order of the sizes
Load = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What a search came to."""

    #: {node: (size, chips) of each pod that it takes}; None when it found nothing
    pods: Mapping[str, tuple[tuple[int, int], ...]] | None
    #: whether it ended at its bound, so that there may be a way all the same
    bounded: bool = False


def is_greedy_exact(row: Product, sizes: Sequence[int]) -> bool:
    """Whether laying pods one by one, the largest first, finds room if there is any.

    It does for pods of one size. It does for sizes that divide each other, as long
    as every size lies inside one group or is made of whole ones: then each pod takes
    as much room from the smaller ones wherever it goes.

    Args:
        row: By whose rule.
        sizes: The different counts of chips, in any order.
    """
    ladder = sorted(set(sizes))
    if len(ladder) < 2:
        return True
    ways = {way for size in ladder for way in row.ways.get(size, ())}
    if ways == {Way.GROUPS} and ladder[-1] > row.group_size:
        ladder = sorted({*ladder, row.group_size})
    elif Way.GROUPS in ways and len(ways) > 1:
        return False
    if ways & {Way.HALVES, Way.PAIRS}:
        return False
    return all(larger % smaller == 0 for smaller, larger in pairwise(ladder))


def pack(free: Mapping[str, tuple[Product, int]], pods: Mapping[int, int]) -> Packing:
    """Find nodes and chips for all pods of a job, whatever their sizes.

    Args:
        free: {node: by whose rule, mask of the chips that may be given}, in the
            order in which nodes are to be tried.
        pods: {size: how many pods}.

    Returns:
        A packing of all pods; of several the first that is found. Without one, it
        says whether there is none, or whether the search was ended.
    """
    sizes = tuple(sorted(pods, reverse=True))
    goal = tuple(pods[size] for size in sizes)
    left = None if sum(goal) <= EXACT_UP_TO else BOUND
    #: {pods laid: (those laid before, node, what it took)}
    reached: dict[Load, tuple[Load, str, Load] | None] = {(0,) * len(sizes): None}
    for name in _few_of_a_kind(free, sum(goal)):
        loads = tuple(_fillings(*free[name], sizes, goal))
        for before in list(reached):
            for load in loads:
                after = tuple(map(min, goal, map(int.__add__, before, load)))
                if after not in reached:
                    taken = tuple(map(int.__sub__, after, before))
                    reached[after] = before, name, taken
            if left is not None:
                left -= len(loads)
                if left < 0:
                    return Packing(pods=None, bounded=True)
        if goal in reached:
            return Packing(pods=_read(free, sizes, goal, reached))
    return Packing(pods=None)


def _read(
    free: Mapping[str, tuple[Product, int]],
    sizes: Sequence[int],
    goal: Load,
    reached: Mapping[Load, tuple[Load, str, Load] | None],
) -> dict[str, tuple[tuple[int, int], ...]]:
    """The way back from the goal: which node took what."""
    found = {}
    at = goal
    while (step := reached[at]) is not None:
        at, name, taken = step
        found[name] = _fillings(*free[name], sizes, taken)[taken]
    return found


def _few_of_a_kind(
    free: Mapping[str, tuple[Product, int]], number: int
) -> Iterator[str]:
    """Of nodes that can be filled alike, no more than there are pods."""
    seen: dict[object, int] = {}
    for name, (row, mask) in free.items():
        kind = row, chips.shape(row, mask)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= number:
            yield name


@lru_cache(maxsize=1024)
def _fillings(
    row: Product, free: int, sizes: tuple[int, ...], goal: Load
) -> Mapping[Load, tuple[tuple[int, int], ...]]:
    """{numbers of pods: (size, chips) of each}, for all that a node can take."""
    none = (0,) * len(sizes)
    found: dict[Load, tuple[tuple[int, int], ...]] = {none: ()}
    seen: set[tuple[Load, object]] = set()
    queue: list[tuple[Load, int, tuple[tuple[int, int], ...]]] = [(none, free, ())]
    while queue:
        load, rest, pods = queue.pop()
        # The largest first: a smaller one is never followed by a larger.
        first = max((at for at, n in enumerate(load) if n), default=0)
        for at in range(first, len(sizes)):
            if load[at] == goal[at]:
                continue
            after = (*load[:at], load[at] + 1, *load[at + 1 :])
            for chosen in _choices(row, rest, sizes[at]):
                key = after, chips.shape(row, rest & ~chosen)
                if key not in seen:
                    seen.add(key)
                    laid = (*pods, (sizes[at], chosen))
                    found.setdefault(after, laid)
                    queue.append((after, rest & ~chosen, laid))
    return found


def _choices(row: Product, free: int, count: int) -> Iterator[int]:
    """One set of chips for each way in which `count` chips can lie in the groups."""
    if Way.GROUPS not in {way for ways in row.ways.values() for way in ways}:
        if chosen := chips.choose(row, free, count):
            yield chosen
        return
    seen = set()
    for chosen in _spread(row, free, count):
        kind = chips.shape(row, free & ~chosen)
        if kind not in seen:
            seen.add(kind)
            yield chosen


def _spread(row: Product, free: int, count: int) -> Iterator[int]:
    whole, rest = divmod(count, row.group_size)
    for way in row.ways.get(count, ()):
        if way is Way.GROUPS:
            full = [group for group in row.groups if free & group == group]
            for home in combinations(full, whole):
                taken = sum(home)
                others = [g for g in row.groups if rest and not g & taken]
                parts = (lowest(free & group, rest) for group in others)
                yield from (taken | part for part in parts if part)
                if not rest:
                    yield taken
        elif way is Way.WHOLE_FIRST:
            yield from _anyhow(row, free, count)
        elif chosen := LAYOUTS[way].choose(row, free, count):
            yield chosen


def _anyhow(row: Product, free: int, count: int) -> Iterator[int]:
    """Every division of the count over the groups; the table has few of them then."""
    some = [range((free & group).bit_count() + 1) for group in row.groups]
    for division in every(*some):
        if sum(division) == count:
            parts = zip(row.groups, division, strict=True)
            yield sum(lowest(free & group, number) for group, number in parts)
