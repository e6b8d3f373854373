"""What the core costs: a decision, an update, an answer about 5,000 names.

Clusters of random occupancy from fixed seeds; one node in ten has chips that are not
healthy. As the extender does once it has read the cluster, the nodes are taken out of
the garbage collector's sight before anything is timed.
"""

import gc
import random  # noqa: TID251  # seeded: the same clusters in every run
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns

from benchmarks.table import Row, percentile
from scheduler_core import gangs
from scheduler_core.answers import JobPlacement
from scheduler_core.cluster import Cluster, NodeState
from scheduler_core.placement import Placement, place
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products import PRODUCTS, Product

_SIZES = (1_000, 10_000, 100_000)
_SAMPLES = 20_000
#: of each product but the first
_FEWER_SAMPLES = 4_000
#: decisions that are made before the first that is timed
_WARM_UP = 1_000
#: names that a scheduler sends with one filter call, at most
_NAMES = 5_000
#: pods of a large job, and nodes
_GANG = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timings:
    """Microseconds, one for each sample."""

    nodes: int
    decisions: list[float]
    updates: list[float]
    surveys: list[float]


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about two minutes."""
    timings = [_measure(nodes, PRODUCT, _SAMPLES) for nodes in _SIZES]
    spread = _spread(timings)
    return [
        *(
            _row("single-pod decision", timing.nodes, timing.decisions, (5, 20))
            for timing in timings
        ),
        Row(
            figure="single-pod decision, largest over smallest median of the sizes",
            goal="≤ 1.3",
            value=f"{spread:.2f}",
            passed=spread <= 1.3,
        ),
        *(
            _row(
                "update of one node in the index", timing.nodes, timing.updates, (5, 50)
            )
            for timing in timings
        ),
        *_survey_rows(timings),
        _gang_row(),
        *(_product_row(row) for row in _others()),
    ]


def _gang_row() -> Row:
    """A job that fills a cluster: one pod of a whole server on each node."""
    size, chance = PRODUCT.chip_count, random.Random(0)  # noqa: S311  # no secret
    free = _node("", PRODUCT, chance)
    whole = replace(free, healthy=PRODUCT.all_chips, free=PRODUCT.all_chips)
    cluster = Cluster(replace(whole, name=f"node-{index:06}") for index in range(_GANG))
    gang = [gangs.Member(name=f"pod-{i}", chips=size) for i in range(_GANG)]
    samples = []
    for _ in range(20):
        answer, took = _timed(partial(gangs.plan, PRODUCT.resource, gang, cluster))
        assert isinstance(answer, JobPlacement)
        samples.append(took / 1000)
    p50 = percentile(samples, 0.5)
    return Row(
        figure=f"job of {_GANG:,} pods of {size} chips on {_GANG:,} nodes",
        goal="≤ 50 ms",
        value=f"p50 {p50:.0f} ms, worst {max(samples):.0f} ms",
        passed=p50 <= 50,
    )


def _others() -> Iterator[Product]:
    """The other rows whose choices differ: one of those that are laid out alike."""
    seen = {_layout(PRODUCT)}
    for row in PRODUCTS:
        if _layout(row) not in seen:
            seen.add(_layout(row))
            yield row


def _layout(row: Product) -> tuple[object, ...]:
    ways = tuple(sorted(row.ways.items()))
    return row.chip_count, row.group_size, row.order, str(ways)


def _product_row(row: Product) -> Row:
    """One line for a product: the worst of the sizes, and their spread."""
    timings = [_measure(nodes, row, _FEWER_SAMPLES) for nodes in _SIZES]
    p50 = max(percentile(timing.decisions, 0.5) for timing in timings)
    p99 = max(percentile(timing.decisions, 0.99) for timing in timings)
    update = max(percentile(timing.updates, 0.5) for timing in timings)
    spread = _spread(timings)
    return Row(
        figure=f"{row.key}: decision, worst of {', '.join(f'{n:,}' for n in _SIZES)}",
        goal="p50 ≤ 5 µs, p99 ≤ 20 µs, sizes within 1.3",
        value=(
            f"p50 {p50:.1f} µs, p99 {p99:.1f} µs, sizes within {spread:.2f}; "
            f"update p50 {update:.1f} µs"
        ),
        passed=p50 <= 5 and p99 <= 20 and spread <= 1.3,
    )


def _spread(timings: list[_Timings]) -> float:
    medians = [percentile(timing.decisions, 0.5) for timing in timings]
    return max(medians) / min(medians)


def _row(
    figure: str, nodes: int, samples: list[float], goals: tuple[float, float]
) -> Row:
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    return Row(
        figure=f"{figure}, {nodes:,} nodes",
        goal=f"p50 ≤ {goals[0]:g} µs, p99 ≤ {goals[1]:g} µs",
        value=f"p50 {p50:.1f} µs, p99 {p99:.1f} µs",
        passed=p50 <= goals[0] and p99 <= goals[1],
    )


def _survey_rows(timings: list[_Timings]) -> Iterator[Row]:
    for timing in timings:
        if timing.surveys:
            p50 = percentile(timing.surveys, 0.5) / 1000
            p99 = percentile(timing.surveys, 0.99) / 1000
            yield Row(
                figure=f"best of {_NAMES:,} names, {timing.nodes:,} nodes",
                goal="p99 ≤ 5 ms, with HTTP and JSON around it",
                value=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
                passed=p99 <= 5,
            )


def _measure(nodes: int, row: Product, samples: int) -> _Timings:
    chance = random.Random(nodes)  # noqa: S311  # no secret is made
    names = [f"node-{index:06}" for index in range(nodes)]
    cluster = Cluster(_node(name, row, chance) for name in names)
    gc.collect()
    gc.freeze()
    decisions: list[float] = []
    updates: list[float] = []
    for sample in range(-_WARM_UP, samples):
        count = chance.choice(row.counts)
        answer, decision = _timed(partial(place, row.resource, count, cluster))
        node = _node(chance.choice(names), row, chance)
        _, update = _timed(partial(cluster.put, node))
        if sample >= 0:
            updates.append(update)
            if isinstance(answer, Placement):
                decisions.append(decision)
    surveys = (
        _surveys(cluster, names, chance) if nodes >= _NAMES and row is PRODUCT else []
    )
    gc.unfreeze()
    return _Timings(nodes=nodes, decisions=decisions, updates=updates, surveys=surveys)


def _surveys(cluster: Cluster, names: list[str], chance: random.Random) -> list[float]:
    # Names come out of a request's JSON: texts of their own, not the index's.
    asked = [name[:4] + name[4:] for name in chance.sample(names, _NAMES)]
    return [
        _timed(partial(cluster.survey, PRODUCT.resource, 2, asked))[1]
        for _ in range(300)
    ]


def _node(name: str, row: Product, chance: random.Random) -> NodeState:
    whole = chance.random() < 0.9
    healthy = row.all_chips if whole else chance.randrange(row.all_chips)
    return NodeState(
        name=name,
        product=row,
        inventory=row.all_chips,
        healthy=healthy,
        free=chance.randrange(row.all_chips + 1) & healthy,
    )


def _timed(call: Callable[[], object]) -> tuple[object, float]:
    """What the call answers, and how many microseconds it took."""
    start = perf_counter_ns()
    answer = call()
    return answer, (perf_counter_ns() - start) / 1000
