"""How far our choices are from the best that could be, where that can be computed.

Small clusters in every state, and every way to serve a pod in them. Two questions:
what one decision adds to fragmentation beyond the least that any legal choice on any
node adds; and how many chips a row of pods gets, placed one by one as they come,
beside the most that somebody could place who knows all of them beforehand.

Nodes and chips that can stand for each other are counted once (`chips.shape`), and
each of these states as much as any other; how often they come in a cluster at work is
another matter, so the last figure asks the first question of a replayed trace.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations_with_replacement
from itertools import product as every

from benchmarks import trace
from benchmarks.fleet import Fleet, Places, legal_sets, ours
from benchmarks.replay import PRODUCT, replay
from benchmarks.table import Row
from scheduler_core.explain import fragmentation
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips
from scheduler_core.node.chip_mask import mask_of
from scheduler_core.placement.pod import Placement, place
from scheduler_core.products import table
from scheduler_core.products.table import Product

#: rows whose chips lie in groups, and one whose chips do not
_ROWS = ("atlas-800-training", "atlas-a3-8", "mesh-8", "flat-8")
#: nodes of the clusters of which every state is looked at
_NODES = 3
#: of a row of pods: nodes, and how many pods come
_ROW_NODES, _ROW_PODS = 2, 5
_LOAD = 0.9

#: masks of the free chips of each node
State = tuple[int, ...]


def rows() -> list[Row]:
    """The distributions. Takes about a minute."""
    return [
        *(
            _row(
                f"{key}: one decision, fragmentation",
                decisions(table.by_key(key), _NODES),
            )
            for key in _ROWS
        ),
        *(
            _row(
                f"{key}: {_ROW_PODS} pods, chips not placed",
                rows_of_pods(table.by_key(key), _ROW_NODES, _ROW_PODS),
            )
            for key in _ROWS
        ),
        _row(
            f"{PRODUCT.key}: decisions of a replay at load {_LOAD}, fragmentation",
            _of_a_replay(),
        ),
    ]


def _row(what: str, excess: Counter[int]) -> Row:
    """The distribution in a line; nothing is demanded of it."""
    cases = excess.total()
    mean = sum(amount * number for amount, number in excess.items()) / cases
    shares = ", ".join(
        f"{amount}: {100 * number / cases:.1f} %"
        for amount, number in sorted(excess.items())
    )
    return Row(
        figure=f"{what} beyond the optimum ({cases:,} cases)",
        goal="reported as it is",
        value=f"mean {mean:.3f}; {shares}",
        passed=True,
    )


def decisions(row: Product, nodes: int) -> Counter[int]:
    """Fragmentation added beyond the least, over all states and counts.

    Args:
        row: By whose rule, on servers of its own.
        nodes: How many the cluster has.
    """
    excess: Counter[int] = Counter()
    for state, count in every(_states(row, nodes), row.counts):
        after = _ours(row, state, count)
        if after is not None:
            added = _total(row, after) - _total(row, state)
            excess[added - _least(row, state, count)] += 1
    return excess


def _states(row: Product, nodes: int) -> Iterator[State]:
    """Every state of so many nodes, those that can stand for each other once."""
    kinds = sorted({_stand_in(row, free) for free in range(row.all_chips + 1)})
    return combinations_with_replacement(kinds, nodes)


@cache
def _stand_in(row: Product, free: int) -> int:
    """The mask that stands for all of its shape: the lowest."""
    return _of_shape(row, chips.shape(row, free))


@cache
def _of_shape(row: Product, shape: object) -> int:
    masks = range(row.all_chips + 1)
    return next(mask for mask in masks if chips.shape(row, mask) == shape)


def _total(row: Product, state: Iterable[int]) -> int:
    return sum(_fragmentation(row, free) for free in state)


def _fragmentation(row: Product, free: int) -> int:
    return fragmentation.measure_chips(row, free, row.all_chips)


@cache
def _ours(row: Product, state: State, count: int) -> State | None:
    """What `scheduler_core` makes of it; None when it finds no place."""
    everything = row.all_chips
    cluster = Cluster(
        NodeState(
            name=str(at),
            product=row,
            inventory=everything,
            healthy=everything,
            free=free,
        )
        for at, free in enumerate(state)
    )
    answer = place(row, count, cluster)
    if not isinstance(answer, Placement):
        return None
    at = int(answer.node)
    left = state[at] & ~mask_of(answer.chips)
    return (*state[:at], left, *state[at + 1 :])


def _least(row: Product, state: State, count: int) -> int:
    """The least that a legal choice adds, on whichever node; one can serve."""
    added = (_least_of(row, free, count) for free in state)
    return min(least for least in added if least is not None)


@cache
def _least_of(row: Product, free: int, count: int) -> int | None:
    """The least that a legal choice adds on this node; None when there is none."""
    return min(
        (
            _fragmentation(row, free & ~chosen) - _fragmentation(row, free)
            for chosen in legal_sets(row, free, count)
        ),
        default=None,
    )


def rows_of_pods(row: Product, nodes: int, number: int) -> Counter[int]:
    """Chips that the most has and we have not, over all states and rows of pods.

    Args:
        row: By whose rule, on servers of its own; of its counts the powers of two.
        nodes: How many the cluster has.
        number: How many pods come.
    """
    missing: Counter[int] = Counter()
    counts = [count for count in row.counts if count.bit_count() == 1]
    for state, pods in every(_states(row, nodes), every(counts, repeat=number)):
        most = _most(row, tuple(sorted(state)), tuple(sorted(pods)))
        missing[most - _one_by_one(row, state, pods)] += 1
    return missing


def _one_by_one(row: Product, state: State, pods: tuple[int, ...]) -> int:
    """Chips that we place when pods come in this order and none ends."""
    placed = 0
    for count in pods:
        after = _ours(row, state, count)
        if after is not None:
            state, placed = after, placed + count
    return placed


@cache
def _most(row: Product, state: State, pods: tuple[int, ...]) -> int:
    """The most chips that any choice places, leaving out whom it likes."""
    if not pods:
        return 0
    count, others = pods[-1], pods[:-1]
    afters = {
        tuple(sorted((*state[:at], _stand_in(row, free & ~chosen), *state[at + 1 :])))
        for at, free in enumerate(state)
        for chosen in legal_sets(row, free, count)
    }
    best = max((count + _most(row, after, others) for after in afters), default=0)
    return max(best, _most(row, state, others))


def _of_a_replay() -> Counter[int]:
    """Fragmentation added beyond the least, by each job of one pod."""
    excess: Counter[int] = Counter()

    def watched(fleet: Fleet, pods: int, count: int) -> Places | None:
        places = ours(fleet, pods, count)
        if places and pods == 1:
            ((name, mask),) = places
            free = fleet.free[name]
            added = _fragmentation(PRODUCT, free & ~mask) - _fragmentation(
                PRODUCT, free
            )
            state = tuple(fleet.free.values())
            excess[added - _least(PRODUCT, state, count)] += 1
        return places

    for seed in trace.SEEDS:
        replay(trace.make(seed), _LOAD, watched)
    return excess
