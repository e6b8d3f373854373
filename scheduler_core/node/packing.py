"""Exact search for chips of all pods of a job with pods of several sizes.

Placing the largest pods first is exact for some sizes (`is_greedy_exact`). For the
others a dynamic program combines the fillings of each node, node by node.
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

#: most combinations of nodes and pods that are tried for a job of more than
#: `EXACT_UP_TO` pods; each takes about a microsecond
BOUND = 200_000
#: largest number of pods of a job for which the search has no bound
EXACT_UP_TO = 12

#: number of pods of each size, in the order of the sizes
Load = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Result of a search: chips for all pods, or none."""

    #: {node: (size, mask of chips) of each of its pods}; None for no result
    pods: Mapping[str, tuple[tuple[int, int], ...]] | None
    #: whether the search ended at `BOUND`, so that a packing may exist all the same
    bounded: bool = False


def is_greedy_exact(row: Product, sizes: Sequence[int]) -> bool:
    """Return whether placing pods largest first finds a packing if there is one.

    It does for pods of one size. It also does for sizes that divide each other and
    lie inside one group or fill whole groups. Each pod then takes the same amount
    from smaller pods on every node.

    Args:
        row: The row that serves.
        sizes: Counts of chips of the pods, in any order.
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
        free: {node: (row that serves, mask of the chips that may be given)}; the
            search tries nodes in this order.
        pods: {size: number of pods}.

    Returns:
        The first packing of all pods. Without one, `bounded` says whether the search
        ended early.
    """
    sizes = tuple(sorted(pods, reverse=True))
    goal = tuple(pods[size] for size in sizes)
    budget = None if sum(goal) <= EXACT_UP_TO else BOUND
    #: {load placed so far: (load before the last node, that node, its load)}
    reached: dict[Load, tuple[Load, str, Load] | None] = {(0,) * len(sizes): None}
    for name in _limit_alike_nodes(free, sum(goal)):
        loads = tuple(_fillings(*free[name], sizes, goal))
        for before in list(reached):
            for load in loads:
                after = tuple(map(min, goal, map(int.__add__, before, load)))
                if after not in reached:
                    node_load = tuple(map(int.__sub__, after, before))
                    reached[after] = before, name, node_load
            if budget is not None:
                budget -= len(loads)
                if budget < 0:
                    return Packing(pods=None, bounded=True)
        if goal in reached:
            return Packing(pods=_trace_back(free, sizes, goal, reached))
    return Packing(pods=None)


def _trace_back(
    free: Mapping[str, tuple[Product, int]],
    sizes: Sequence[int],
    goal: Load,
    reached: Mapping[Load, tuple[Load, str, Load] | None],
) -> dict[str, tuple[tuple[int, int], ...]]:
    """Follow `reached` back from the goal and return {node: (size, chips) of pods}."""
    pods_of_node = {}
    load = goal
    while (step := reached[load]) is not None:
        load, name, node_load = step
        pods_of_node[name] = _fillings(*free[name], sizes, node_load)[node_load]
    return pods_of_node


def _limit_alike_nodes(
    free: Mapping[str, tuple[Product, int]], number: int
) -> Iterator[str]:
    """Yield the nodes in order, at most `number` of those that can be filled alike."""
    nodes_of_kind: dict[object, int] = {}
    for name, (row, mask) in free.items():
        kind = row, chips.shape(row, mask)
        nodes_of_kind[kind] = nodes_of_kind.get(kind, 0) + 1
        if nodes_of_kind[kind] <= number:
            yield name


@lru_cache(maxsize=1024)
def _fillings(
    row: Product, free: int, sizes: tuple[int, ...], goal: Load
) -> Mapping[Load, tuple[tuple[int, int], ...]]:
    """Return {load: (size, chips) of each of its pods} for all loads of one node."""
    none = (0,) * len(sizes)
    fillings: dict[Load, tuple[tuple[int, int], ...]] = {none: ()}
    visited: set[tuple[Load, object]] = set()
    queue: list[tuple[Load, int, tuple[tuple[int, int], ...]]] = [(none, free, ())]
    while queue:
        load, rest, pods = queue.pop()
        # Largest first: after a pod of one size only equal or smaller ones follow.
        first = max((index for index, n in enumerate(load) if n), default=0)
        for index in range(first, len(sizes)):
            if load[index] == goal[index]:
                continue
            after = (*load[:index], load[index] + 1, *load[index + 1 :])
            for chosen in _choices(row, rest, sizes[index]):
                key = after, chips.shape(row, rest & ~chosen)
                if key not in visited:
                    visited.add(key)
                    placed = (*pods, (sizes[index], chosen))
                    fillings.setdefault(after, placed)
                    queue.append((after, rest & ~chosen, placed))
    return fillings


def _choices(row: Product, free: int, count: int) -> Iterator[int]:
    """Yield one set of `count` chips for each remaining shape of the node."""
    if Way.GROUPS not in {way for ways in row.ways.values() for way in ways}:
        if chosen := chips.choose(row, free, count):
            yield chosen
        return
    shapes = set()
    for chosen in _layouts(row, free, count):
        kind = chips.shape(row, free & ~chosen)
        if kind not in shapes:
            shapes.add(kind)
            yield chosen


def _layouts(row: Product, free: int, count: int) -> Iterator[int]:
    whole, rest = divmod(count, row.group_size)
    for way in row.ways.get(count, ()):
        if way is Way.GROUPS:
            full = [group for group in row.groups if free & group == group]
            for whole_groups in combinations(full, whole):
                chosen = sum(whole_groups)
                others = [g for g in row.groups if rest and not g & chosen]
                parts = (lowest(free & group, rest) for group in others)
                yield from (chosen | part for part in parts if part)
                if not rest:
                    yield chosen
        elif way is Way.WHOLE_FIRST:
            yield from _divisions(row, free, count)
        elif chosen := LAYOUTS[way].choose(row, free, count):
            yield chosen


def _divisions(row: Product, free: int, count: int) -> Iterator[int]:
    """Yield chips for each division of the count over the groups (rows have few)."""
    shares = [range((free & group).bit_count() + 1) for group in row.groups]
    for division in every(*shares):
        if sum(division) == count:
            parts = zip(row.groups, division, strict=True)
            yield sum(lowest(free & group, number) for group, number in parts)
