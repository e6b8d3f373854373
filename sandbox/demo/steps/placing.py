"""Step 2: pods of one, two, four and eight chips are placed.

A module of its own: each step of the demo has one.
"""

from sandbox.demo import picture
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.inspect.facts import Chips, PodFacts
from sandbox.inspect.terminal import Style

NAMES = {"one": 1, "two": 2, "four": 4, "eight": 8}


async def play(stage: Stage) -> Problems:
    """Create the pods, and show where they are and why."""
    world = stage.world
    await pods.create(
        world, *(pods.manifest(name, count) for name, count in NAMES.items())
    )
    cluster = await pods.settled(world, tuple(NAMES))
    for name in NAMES:
        await _tell(stage, cluster.pod(name), cluster.mounted(cluster.pod(name).uid))
    stage.terminal.say()
    stage.terminal.lines(picture.nodes(cluster))
    placed = [pod for pod in cluster.pods if pod.name in NAMES]
    return stage.judge(cluster, tuple(NAMES)) + checks.placed_well(placed)


async def _tell(stage: Stage, pod: PodFacts, mounted: Chips) -> None:
    chips = ",".join(map(str, mounted)) or "none"
    where = (
        f"{pod.name:<5}  {pod.count} of 8  on {pod.node or 'no node'}, chips {chips}"
    )
    stage.terminal.say(where)
    reason = await observer.event(stage.world, pod, "AscendScheduled")
    stage.terminal.say(f"       {reason or '(no event)'}", Style.DIM)
