"""Step 4: a chip breaks, everybody follows; it recovers, everybody follows."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from sandbox.demo import picture
from sandbox.demo.measurements import in_ms
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.inspect.facts import Chips
from sandbox.world import CHIP_COUNT, World

_Read = Callable[[World, str], Awaitable[object]]
NODE = "node-2"
#: The chip that a one-chip pod on an empty node gets.
CHIP = 0
POD = "careful"
#: Recovery takes the agent's hold-off of 1 s besides.
_WITHIN_S = 5.0
#: pod-resources answers 100 calls a second, to all callers together.
_LOOK_S = 0.015


async def play(stage: Stage) -> Problems:
    """Break a chip, place a pod beside it, mend the chip."""
    world, node = stage.world, stage.world.nodes[NODE]
    await pods.remove_all(world)
    stage.terminal.say(f"chip {CHIP} of {NODE} breaks (its driver's file is edited)")
    node.set_faults((CHIP,))
    await _follow(stage, (CHIP,))
    problems = checks.unhealthy(await observer.node(world, NODE), (CHIP,))
    await pods.create(world, pods.manifest(POD, 1, node=NODE))
    cluster = await pods.settled(world, (POD,))
    pod = cluster.pod(POD)
    mounted = cluster.mounted(pod.uid)
    stage.terminal.say()
    stage.terminal.lines(picture.nodes(cluster))
    problems += stage.judge(cluster, (POD,)) + checks.avoided(pod, mounted, (CHIP,))
    if not problems:
        stage.terminal.good(f"the next pod avoids it: {POD} has chip {mounted[0]}")
    stage.terminal.say()
    stage.terminal.say(f"chip {CHIP} recovers")
    node.set_faults(())
    await _follow(stage, ())
    return problems + checks.unhealthy(await observer.node(world, NODE), ())


async def _follow(stage: Stage, broken: Chips) -> None:
    """Tell how long each of the three takes to say which chips are out of service."""
    world = stage.world
    expected = tuple(c for c in range(CHIP_COUNT) if c not in broken)

    views: dict[str, tuple[_Read, object]] = {
        "the kubelet's list": (observer.listed, expected),
        "the ConfigMap": (observer.out_of_service, broken),
        "the node's allocatable": (observer.allocatable, len(expected)),
    }
    times = await asyncio.gather(
        *(
            _time(partial(read, world, NODE), wanted, what=f"{what} without {broken}")
            for what, (read, wanted) in views.items()
        )
    )
    told = (f"{what} after {in_ms(s)}" for what, s in zip(views, times, strict=True))
    stage.terminal.good(f"followed: {', '.join(told)}")
    if broken:
        stage.tally.event_to_config_map_s.append(times[1])


async def _time(
    read: Callable[[], Awaitable[object]], wanted: object, *, what: str
) -> float:
    async def probe() -> bool:
        return await read() == wanted

    loop = asyncio.get_running_loop()
    begin = loop.time()
    await observer.until(probe, what=what, within_s=_WITHIN_S, pause_s=_LOOK_S)
    return loop.time() - begin
