"""Step 6: a pod that fits nowhere stays pending, and its event says why."""

from sandbox.demo import picture
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.world import RESOURCE

POD = "homeless"
#: Three nodes, three reasons for a pod of four chips: on the first neither ring has
#: four free chips, on the second neither has four healthy ones, the third is full.
_FIRST = {"corner": (1, "node-1")}
_THEN = {"half": (2, "node-1"), "whole": (8, "node-3")}
_BROKEN_NODE = "node-2"
_BROKEN = (3, 7)
_REASONS = {
    "no HCCS ring has 4 free chips": 1,
    "chip unhealthy": 1,
    f"Insufficient {RESOURCE}": 1,
}


async def play(stage: Stage) -> Problems:
    """Fill the nodes, ask for more, and read the event."""
    world = stage.world
    await pods.remove_all(world)
    problems = await _fill(stage)
    world.nodes[_BROKEN_NODE].set_faults(_BROKEN)

    async def known() -> bool:
        return not checks.unhealthy(await observer.node(world, _BROKEN_NODE), _BROKEN)

    await observer.until(known, what=f"{_BROKEN_NODE} without {_BROKEN}")
    await pods.create(world, pods.manifest(POD, 4))
    message = await _explanation(stage)
    cluster = await observer.cluster(world)
    stage.terminal.lines(picture.nodes(cluster))
    stage.terminal.say()
    pod = cluster.pod(POD)
    stage.terminal.say(f"{POD} asks for {pod.count} chips and is {pod.phase}:")
    stage.terminal.say(f"  FailedScheduling: {message}")
    problems += checks.stays_pending(pod) + checks.explained(message, _REASONS)
    if not problems:
        stage.tally.pending += 1
        stage.terminal.good("the reasons account for every node")
    return problems


async def _fill(stage: Stage) -> Problems:
    """Load the nodes; the first pod is bound before the second is made."""
    for group in (_FIRST, _THEN):
        wanted = [
            pods.manifest(n, count, node=node) for n, (count, node) in group.items()
        ]
        await pods.create(stage.world, *wanted)
        await pods.bound(stage.world, tuple(group))
    names = (*_FIRST, *_THEN)
    return stage.judge(await pods.settled(stage.world, names), names)


async def _explanation(stage: Stage) -> str:
    """Return the event of the pod that fits nowhere."""

    async def told() -> str:
        pods_now = await observer.pods(stage.world)
        pod = next(pod for pod in pods_now if pod.name == POD)
        return await observer.event(stage.world, pod, "FailedScheduling")

    return await observer.until(told, what=f"an event on {POD}")
