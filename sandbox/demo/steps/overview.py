"""Steps 1, 2 and 7: nodes register, pods are placed, and the sum of it all."""

from collections.abc import Sequence

from sandbox.demo import kubectl, picture
from sandbox.demo.measurements import in_ms, quantile
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.inspect.terminal import Style
from sandbox.world import RESOURCE

#: {pod: its chips}
NAMES = {"one": 1, "two": 2, "four": 4, "eight": 8}


async def register(stage: Stage) -> Problems:
    """Show what Node objects and a ConfigMap say."""
    cluster = await observer.cluster(stage.world)
    rows = [("node", "capacity", "allocatable", "healthy by the kubelet's own list")]
    rows += [
        (
            node.name,
            f"{RESOURCE}: {node.capacity}",
            f"{RESOURCE}: {node.allocatable}",
            f"{len(node.listed)} ids",
        )
        for node in cluster.nodes
    ]
    stage.terminal.table(rows)
    stage.terminal.say()
    stage.terminal.say(await kubectl.described_config_map(stage.world, "node-1"))
    stage.terminal.lines(picture.nodes(cluster))
    return checks.registered(cluster.nodes)


async def place(stage: Stage) -> Problems:
    """Create pods of one, two, four and eight chips; show where they are and why."""
    world, say, names = stage.world, stage.terminal.say, tuple(NAMES)
    await pods.create(world, *(pods.manifest(name, n) for name, n in NAMES.items()))
    cluster = await pods.settled(world, names)
    placed = [cluster.pod(name) for name in names]
    for pod in placed:
        chips = ",".join(map(str, cluster.mounted(pod.uid))) or "none"
        where = f"on {pod.node or 'no node'}, chips {chips}"
        say(f"{pod.name:<5}  {pod.count} of 8  {where}")
        reason = await observer.event(world, pod, "AscendScheduled")
        say(f"       {reason or '(no event)'}", Style.DIM)
    say()
    stage.terminal.lines(picture.nodes(cluster))
    return stage.judge(cluster, names) + checks.placed_well(placed)


async def add_up(stage: Stage) -> Problems:
    """Add up what the steps have seen and the kubelets have measured, as a table."""
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
        ("chip fault to ConfigMap", in_ms(max(event_s, default=0.0))),
        (
            "chip fault to the job of the chip running again",
            _in_s(tally.event_to_job_s),
        ),
    ]
    stage.terminal.table(rows, has_head=False)
    return checks.summed_up(
        {
            "pods rejected by a kubelet": tally.rejected,
            "wrong pairings": tally.wrong_pairings,
            "double allocations": tally.double_allocations,
        }
    )


def _in_s(durations_s: Sequence[float]) -> str:
    return f"{max(durations_s, default=0.0):.1f} s"
