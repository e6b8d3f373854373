"""What jobs cost that ask for leaf switches or SuperPoDs.

A thousand leaves of 32 nodes, a thousand SuperPoDs of 48. Before each plan one random
node changes, as in a cluster at work, and the index follows it.
"""

import random  # noqa: TID251  # seeded: the same clusters in every run
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.pool import frozen, timed, whole_node
from benchmarks.table import Row, percentile
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node.decision import JobPlacement, Rejection
from scheduler_core.placement import job as job_placement
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import Terms
from scheduler_core.placement.job_rules import Job, Pod
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import (
    Leaf,
    Network,
    Schema,
    Server,
    Tenant,
    Version,
)

_SITES = 1_000
_LEAF, _SUPERPOD = 32, 48
#: tries; the first of a question counts all nodes, and is not timed
_SAMPLES = 100
_BASE_MS, _POD_MS = 1.0, 0.01

A3 = table.by_key("atlas-a3-16-superpod")
#: of which a third of the nodes is busy, so that hardly any leaf is whole
_BUSY = 0.33


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """One line of the table."""

    what: str
    job: Job
    terms: Terms
    expected: type[JobPlacement | Rejection] = JobPlacement


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about a minute."""
    return [*_leaf_rows(), *_superpod_rows()]


def _job(row: Product, pods: int, block: int | None = None) -> Job:
    size = row.chip_count
    return Job(
        row=row,
        pods=tuple(Pod(name=f"pod-{i}", chips=size) for i in range(pods)),
        sp_block=None if block is None else block * size,
    )


def _leaf_rows() -> Iterator[Row]:
    names = [
        [f"leaf-{leaf:04}-{position:02}" for position in range(_LEAF)]
        for leaf in range(_SITES)
    ]
    leaves = tuple(
        Leaf(
            name=str(number),
            servers=tuple(Server(node=name, slice_id=i) for i, name in enumerate(some)),
        )
        for number, some in enumerate(names)
    )
    one = Network(leaves=leaves)
    two = replace(one, version=Version.TWO)
    single = replace(one, version=Version.SINGLE_LAYER)
    # Of every ten leaves two are crossed by a job that uses the spine.
    crossing = tuple(
        Tenant(
            schema=Schema.LARGE_MODEL,
            nodes=frozenset([*names[leaf][:4], *names[leaf + 1][:4]]),
        )
        for leaf in range(0, _SITES, 10)
    )
    crossed = replace(one, tenants=crossing)
    large, normal = Schema.LARGE_MODEL, Schema.NORMAL
    asked = [
        ("1.0, filler", 3, large, one),
        ("1.0, under one leaf", 16, large, crossed),
        ("1.0, over several", 128, large, crossed),
        ("1.0, normal, over several", 500, normal, crossed),
        ("2.0, over several", 128, large, two),
        ("2.0, normal, over several", 500, normal, two),
        ("single layer", 16, normal, single),
    ]
    every = [name for some in names for name in some]
    for state, busy in (("empty", 0.0), ("a third busy", _BUSY)):
        cluster = _cluster(every, ATLAS, busy)
        with frozen():
            for what, pods, schema, network in asked:
                terms = Terms(schema=schema, network=network)
                question = _Question(
                    what=f"leaf switches {what}, {state}",
                    job=_job(ATLAS, pods),
                    terms=terms,
                )
                yield _row(question, cluster, every, busy)
    full = _cluster(every, ATLAS, 1.0)
    with frozen():
        refused = _Question(
            what="leaf switches 1.0, over several, no room",
            job=_job(ATLAS, 128),
            terms=Terms(schema=large, network=crossed),
            expected=Rejection,
        )
        yield _row(refused, full, every, 1.0)


def _superpod_rows() -> Iterator[Row]:
    of_node = {
        f"sp-{superpod:04}-{index:02}": superpod
        for superpod in range(_SITES)
        for index in range(_SUPERPOD)
    }
    terms = Terms(superpods=SuperPods(of_node=of_node))
    every = [*of_node]
    asked: Sequence[tuple[str, int, int, float]] = [
        ("2 logical of 8 nodes, empty", 16, 8, 0.0),
        ("2 logical of 8 nodes, a third busy", 16, 8, _BUSY),
        ("32 logical of 8 nodes, a third busy", 256, 8, _BUSY),
        ("64 logical of 2 nodes, a third busy", 128, 2, _BUSY),
    ]
    for busy in (0.0, _BUSY):
        cluster = _cluster(every, A3, busy)
        with frozen():
            for what, pods, block, state in asked:
                if state == busy:
                    job = _job(A3, pods, block)
                    question = _Question(
                        what=f"SuperPoDs, {what}", job=job, terms=terms
                    )
                    yield _row(question, cluster, every, busy)


def _cluster(names: Sequence[str], row: Product, busy: float) -> Cluster:
    chance = random.Random(0)  # noqa: S311  # no secret is made
    return Cluster(_node(row, busy, chance, name) for name in names)


def _node(row: Product, busy: float, chance: random.Random, name: str) -> NodeState:
    return whole_node(name, row, free=0 if chance.random() < busy else None)


def _row(
    question: _Question, cluster: Cluster, names: Sequence[str], busy: float
) -> Row:
    chance = random.Random(1)  # noqa: S311  # no secret is made
    assert question.job.row is not None
    plan: Callable[[], object] = partial(
        job_placement.place_job, question.job, cluster, terms=question.terms
    )
    plan()
    took = []
    for _ in range(_SAMPLES):
        cluster.put(_node(question.job.row, busy, chance, chance.choice(names)))
        answer, microseconds = timed(plan)
        assert isinstance(answer, question.expected), answer
        took.append(microseconds / 1000)
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    pods = len(question.job.pods)
    allowed = _BASE_MS * _SITES / 1000 + _POD_MS * pods
    return Row(
        figure=f"{question.what}: job of {pods} pods, {_SITES:,} of 32 or 48 nodes",
        goal=f"p50 ≤ 1 ms + 10 µs a pod: {allowed:.2f} ms",
        value=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        passed=p50 <= allowed,
    )
