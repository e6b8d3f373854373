"""A start on a large cluster: how soon the extender is ready, and how large it is then.

5,000 nodes and 40,000 pods, six of eight on each node with a chip; the extender is the
real program, its API server (`benchmarks/prepared.py`) a process of its own.
"""

import time

from benchmarks.deployed import api_server, extender
from benchmarks.population import Population
from benchmarks.table import Row
from service import clock

NODES = 5_000
_ROUNDS = 3
#: What comes after the first lists is over by then.
_SETTLED_S = 3.0


def rows() -> list[Row]:
    """Measure. Takes about a minute."""
    with api_server(crowded(NODES)) as url:
        found = [started(url) for _ in range(_ROUNDS)]
    seconds, sizes = zip(*found, strict=True)
    pods = crowded(NODES).pods
    what = f"{NODES:,} nodes, {pods:,} pods"
    return [
        Row(
            figure=f"extender's start to ready, {what}",
            goal="≤ 15 s",
            value=f"{max(seconds):.1f} s, the slowest of {_ROUNDS}",
            passed=max(seconds) <= 15,
        ),
        Row(
            figure=f"extender's memory (RSS) then, {what}",
            goal="≤ 250 MiB",
            value=f"{max(sizes):.0f} MiB, the largest of {_ROUNDS}",
            passed=max(sizes) <= 250,
        ),
    ]


def crowded(nodes: int) -> Population:
    """A cluster at work: eight pods on each node, six of them with a chip."""
    return Population(
        nodes=nodes, with_chip=6, without=2, reported_s=int(clock.wall_s())
    )


def started(api_url: str) -> tuple[float, float]:
    """Seconds from an extender's beginning until it was ready, and its MiB then."""
    with extender(api_url) as one:
        time.sleep(_SETTLED_S)
        return one.ready_s, one.process.memory_info().rss / 2**20
