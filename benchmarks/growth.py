"""How the extender's figures grow with the cluster: 5,000, 10,000 and 100,000 nodes.

What `extender`, `start`, `gang` and `visible` measure, with the same programs, on
clusters that `benchmarks.prepared` makes up; eight pods on each node. Asked for by
name: the largest has 800,000 pods, and the extender needs some gigabytes for them.

    python -m benchmarks.growth NODES      # one size, as a table
"""

import sys

from benchmarks import gang
from benchmarks.deployed import PREPARED, api_server, extender
from benchmarks.extender import RATE, filters
from benchmarks.start import crowded
from benchmarks.table import Row, percentile, render
from benchmarks.visible import delays, offered

SIZES = (5_000, 10_000, 100_000)
_CALLS = 500
_EVENTS = 200
#: Pods of the job.
_MEMBERS = 5_000


def rows() -> list[Row]:
    """Measure. Takes ten minutes."""
    return [row for nodes in SIZES for row in of(nodes)]


def of(nodes: int) -> list[Row]:
    """The figures of a cluster of so many nodes."""
    population = crowded(nodes)
    with api_server(population) as url, extender(url) as one:
        size_mib = one.process.memory_info().rss / 2**20
        names = offered(nodes)
        asked = filters(one.address, names, 1, calls=_CALLS)
        seen = delays(url, one, nodes, _EVENTS)
        ready_s = one.ready_s
    bound = gang.measured(PREPARED, nodes, _MEMBERS)
    found = {
        f"start to ready, {population.pods:,} pods": f"{ready_s:.1f} s",
        "memory (RSS) then": f"{size_mib:,.0f} MiB",
        f"filter, {len(names):,} names, {RATE} a second": _spread(asked),
        "watch event to decision": _spread(seen),
        f"job of {_MEMBERS:,} pods: planning": f"{bound.plan_ms:.0f} ms",
        f"job of {_MEMBERS:,} pods: gate open to last bound": f"{bound.gate_s:.1f} s",
    }
    return [
        Row(figure=f"{nodes:,} nodes: {what}", goal="none", value=value, passed=True)
        for what, value in found.items()
    ]


def _spread(samples: list[float]) -> str:
    p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"


if __name__ == "__main__":
    print(render(of(int(sys.argv[1]))))
