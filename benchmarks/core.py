"""What the core costs: a decision, an update, answers about names, an overlay, a job.

All of it on Atlas 800 training servers; the other products are in `table.py`.
"""

import random  # noqa: TID251  # seeded: the same clusters in every run
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.pool import (
    SIZES,
    Timings,
    frozen,
    measured,
    names_of,
    random_node,
    spread,
    timed,
    whole_node,
)
from benchmarks.table import Row, percentile
from scheduler_core.index.cluster import BestNode, Cluster, NodeState
from scheduler_core.index.queries import NodeIndex
from scheduler_core.node.decision import JobPlacement
from scheduler_core.placement import gang as gang_placement
from scheduler_core.placement.gang_query import Member
from scheduler_core.placement.overlay import Overlay
from scheduler_core.placement.pod import Placement, Rejection, place
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT

_SAMPLES = 20_000
#: names that a scheduler sends with one filter call, at most; pods of a large job
_MANY = 5_000
#: nodes that an overlay changes
_CHANGED = (10, 1_000)


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about half a minute."""
    timings = [measured(nodes, PRODUCT, _SAMPLES) for nodes in SIZES]
    ratio = spread(timings)
    return [
        *(
            _row("single-pod decision", each.decision, each, (5, 20))
            for each in timings
        ),
        Row(
            figure="single-pod decision, largest over smallest median of the sizes",
            goal="≤ 1.3",
            value=f"{ratio:.2f}",
            passed=ratio <= 1.3,
        ),
        *(
            _row("update of one node in the index", each.update, each, (5, 50))
            for each in timings
        ),
        *_names_rows(),
        *_rejection_rows(),
        *_gang_rows(),
        *_overlay_rows(),
    ]


def _row(
    figure: str,
    sample: Callable[[float], float],
    timings: Timings,
    goals: tuple[float, float],
) -> Row:
    p50, p99 = sample(0.5), sample(0.99)
    return Row(
        figure=f"{figure}, {timings.nodes:,} nodes",
        goal=f"p50 ≤ {goals[0]:g} µs, p99 ≤ {goals[1]:g} µs",
        value=f"p50 {p50:.1f} µs, p99 {p99:.1f} µs",
        passed=p50 <= goals[0] and p99 <= goals[1],
    )


def _names_rows() -> Iterator[Row]:
    """A decision among names, and what each of them can do."""
    chance = random.Random(0)  # noqa: S311  # no secret is made
    names = names_of(SIZES[-1])
    cluster = Cluster(random_node(name, PRODUCT, chance) for name in names)
    with frozen():
        for number in (100, 1_000, _MANY):
            took = []
            for _ in range(300):
                some = _received(chance.sample(names, number))
                call = partial(place, PRODUCT.resource, 2, cluster, names=some)
                answer, microseconds = timed(call)
                assert isinstance(answer, Placement)
                took.append(microseconds / number)
            p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
            yield Row(
                figure=f"decision among {number:,} names of {SIZES[-1]:,}, for each",
                goal="p50 ≤ 0.5 µs",
                value=f"p50 {p50:.2f} µs, p99 {p99:.2f} µs",
                passed=p50 <= 0.5,
            )
        surveys = []
        for _ in range(300):
            some = _received(chance.sample(names, _MANY))
            _, took_us = timed(partial(cluster.survey, PRODUCT.resource, 2, some))
            surveys.append(took_us / 1000)
    p50, p99 = percentile(surveys, 0.5), percentile(surveys, 0.99)
    yield Row(
        figure=f"best of {_MANY:,} names of {SIZES[-1]:,}, and of each why not",
        goal="p99 ≤ 5 ms, with HTTP and JSON around it",
        value=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
        passed=p99 <= 5,
    )


def _received(names: list[str]) -> list[str]:
    """Names as they come out of a request: texts of their own, not the index's."""
    return [name[:4] + name[4:] for name in names]


def _rejection_rows() -> Iterator[Row]:
    """No node has eight chips free; why, counted over all of them."""
    chance = random.Random(1)  # noqa: S311  # no secret is made
    names = names_of(_MANY)
    nodes = [random_node(name, PRODUCT, chance) for name in names]
    cluster = Cluster(node for node in nodes if node.free != PRODUCT.all_chips)
    for name in names:
        if name not in cluster.nodes(PRODUCT):
            cluster.put(whole_node(name, PRODUCT, free=1))
    with frozen():
        for what, asked in (("whole pool", None), ("by name", names)):
            call = partial(place, PRODUCT.resource, 8, cluster, names=asked)
            took = []
            for _ in range(300):
                answer, microseconds = timed(call)
                assert isinstance(answer, Rejection)
                assert answer.nodes == _MANY
                took.append(microseconds / 1000)
            p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
            yield Row(
                figure=f"rejection with reasons, {_MANY:,} nodes, {what}",
                goal="p50 ≤ 2 ms",
                value=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
                passed=p50 <= 2,
            )


def _gang_rows() -> Iterator[Row]:
    """A job that fills a cluster: one pod of a whole server on each node.

    Once more with nodes beside that are busy, as an overlay says.
    """
    size = PRODUCT.chip_count
    what = f"job of {_MANY:,} pods of {size} chips on {_MANY:,} nodes"
    whole = Cluster(whole_node(name, PRODUCT) for name in names_of(_MANY))
    yield _gang_row(what, lambda: whole)

    names = names_of(_MANY + _CHANGED[-1])
    cluster = Cluster(whole_node(name, PRODUCT) for name in names)
    busy = [
        whole_node(name, PRODUCT, free=0)
        for name in names[:: len(names) // _CHANGED[-1]]
    ]
    assert len(busy) == _CHANGED[-1]
    yield _gang_row(
        f"{what}, {_CHANGED[-1]:,} more changed in an overlay",
        partial(Overlay, cluster, busy),
    )


def _gang_row(figure: str, index: Callable[[], NodeIndex]) -> Row:
    """The job on an index; what making an overlay costs is part of it."""
    size = PRODUCT.chip_count
    gang = [Member(name=f"pod-{i}", chips=size) for i in range(_MANY)]
    samples = []
    for _ in range(20):
        answer, took = timed(
            lambda: gang_placement.plan(PRODUCT.resource, gang, index())
        )
        assert isinstance(answer, JobPlacement)
        samples.append(took / 1000)
    p50 = percentile(samples, 0.5)
    return Row(
        figure=figure,
        goal="p50 ≤ 50 ms",
        value=f"p50 {p50:.0f} ms, worst {max(samples):.0f} ms",
        passed=p50 <= 50,
    )


def _overlay_rows() -> Iterator[Row]:
    """The best of all nodes, as if some of them had other chips free."""
    chance = random.Random(2)  # noqa: S311  # no secret is made
    names = names_of(SIZES[-1])
    cluster = Cluster(random_node(name, PRODUCT, chance) for name in names)
    with frozen():
        for number in _CHANGED:
            took = []
            for _ in range(100):
                some = chance.sample(names, number)
                nodes = [random_node(name, PRODUCT, chance) for name in some]
                answer, microseconds = timed(partial(_best_on_overlay, cluster, nodes))
                assert isinstance(answer, BestNode)
                took.append(microseconds / number)
            p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
            yield Row(
                figure=f"best of {SIZES[-1]:,} nodes, {number:,} of them changed in an "
                "overlay, for each of these",
                goal="p50 ≤ 5 µs",
                value=f"p50 {p50:.2f} µs, p99 {p99:.2f} µs",
                passed=p50 <= 5,
            )


def _best_on_overlay(cluster: Cluster, nodes: list[NodeState]) -> BestNode | None:
    return Overlay(cluster, nodes).best(PRODUCT.resource, 2)
