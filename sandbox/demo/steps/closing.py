"""Step 7: the sum of it all, as a table.

A module of its own: each step of the demo has one.
"""

from sandbox.demo.measurements import in_ms, quantile
from sandbox.demo.stage import Stage
from sandbox.inspect import checks
from sandbox.inspect.checks import Problems


async def play(stage: Stage) -> Problems:
    """Add up what the steps have seen and the kubelets have measured."""
    tally = stage.tally
    allocate_s = [s for k in stage.world.kubelets.values() for s in k.allocate_s]
    event_s = tally.event_to_config_map_s
    scheduling = stage.world.scheduling
    rows = [
        ("pods placed", str(tally.placed)),
        ("pods rejected by a kubelet", str(tally.rejected)),
        ("pods cut off with their agent, and replaced", str(tally.cut_off)),
        ("pods left pending, and told why", str(tally.pending)),
        (
            "filters sent before the last bind had answered",
            str(scheduling.overlaps) if scheduling else "not ours to count",
        ),
        ("wrong pairings", str(tally.wrong_pairings)),
        ("double allocations", str(tally.double_allocations)),
        ("Allocate p50, as the kubelet sees it", in_ms(quantile(allocate_s, 0.5))),
        (f"Allocate p99, of {len(allocate_s)}", in_ms(quantile(allocate_s, 0.99))),
        ("chip fault to ConfigMap, the slowest", in_ms(max(event_s, default=0.0))),
    ]
    stage.terminal.table(rows, has_head=False)
    return checks.summed_up(
        {
            "pods rejected by a kubelet": tally.rejected,
            "wrong pairings": tally.wrong_pairings,
            "double allocations": tally.double_allocations,
        }
    )
