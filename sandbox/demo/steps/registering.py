"""Step 1: the nodes register, and report their chips.

A module of its own: each step of the demo has one.
"""

from sandbox.demo import kubectl, picture
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer
from sandbox.inspect.checks import Problems
from sandbox.world import RESOURCE


async def play(stage: Stage) -> Problems:
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
