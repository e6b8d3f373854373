"""Clusters of random occupancy, and the clock: what all measurements of the core share.

From fixed seeds; one node in ten has chips that are not healthy. As the extender does
once it has read the cluster, the nodes are taken out of the garbage collector's sight
before anything is timed.
"""

import gc
import random  # noqa: TID251  # seeded: the same clusters in every run
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

from benchmarks.table import percentile
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.placement.pod import Placement, place
from scheduler_core.products.table import Product

SIZES = (1_000, 10_000, 100_000)
#: decisions that are made before the first that is timed
_WARM_UP = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Microseconds, one for each sample."""

    nodes: int
    decisions: list[float]
    updates: list[float]

    def decision(self, share: float) -> float:
        """The decision below which `share` of all lie."""
        return percentile(self.decisions, share)

    def update(self, share: float) -> float:
        """The update below which `share` of all lie."""
        return percentile(self.updates, share)


def measured(nodes: int, row: Product, samples: int) -> Timings:
    """Time decisions of any legal count, each before one random node changes."""
    chance = random.Random(nodes)  # noqa: S311  # no secret is made
    names = names_of(nodes)
    cluster = Cluster(random_node(name, row, chance) for name in names)
    decisions: list[float] = []
    updates: list[float] = []
    with frozen():
        for sample in range(-_WARM_UP, samples):
            count = chance.choice(row.counts)
            answer, decision = timed(partial(place, row.resource, count, cluster))
            node = random_node(chance.choice(names), row, chance)
            _, update = timed(partial(cluster.put, node))
            if sample >= 0:
                updates.append(update)
                if isinstance(answer, Placement):
                    decisions.append(decision)
    return Timings(nodes=nodes, decisions=decisions, updates=updates)


def spread(timings: list[Timings]) -> float:
    """The largest median of the sizes over the smallest."""
    medians = [timing.decision(0.5) for timing in timings]
    return max(medians) / min(medians)


def names_of(nodes: int) -> list[str]:
    """Names of so many nodes, in order."""
    return [f"node-{index:06}" for index in range(nodes)]


def random_node(name: str, row: Product, chance: random.Random) -> NodeState:
    """A node of which any chips are free."""
    is_whole = chance.random() < 0.9
    healthy = row.all_chips if is_whole else chance.randrange(row.all_chips)
    return NodeState(
        name=name,
        product=row,
        inventory=row.all_chips,
        healthy=healthy,
        free=chance.randrange(row.all_chips + 1) & healthy,
    )


def whole_node(name: str, row: Product, free: int | None = None) -> NodeState:
    """A healthy node with these chips free, else all."""
    return NodeState(
        name=name,
        product=row,
        inventory=row.all_chips,
        healthy=row.all_chips,
        free=row.all_chips if free is None else free,
    )


@contextmanager
def frozen() -> Iterator[None]:
    """What there is is not looked at by the garbage collector meanwhile."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def timed(call: Callable[[], object]) -> tuple[object, float]:
    """What the call answers, and how many microseconds it took."""
    start = perf_counter_ns()
    answer = call()
    return answer, (perf_counter_ns() - start) / 1000
