"""Step 5: an agent is killed while the kubelet waits for its answer.

The pod that it was asked for fails, and says why; its chips come back; what its owner
makes in its place runs; and nobody else notices.
"""

import asyncio

from sandbox.demo import picture
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Problems
from sandbox.inspect.facts import Cluster, PodFacts
from sandbox.world import agent_of

NODE = "node-1"
POD = "cut"
#: As an owner makes it: the same pod, under another name.
REPLACEMENT = "anew"
#: Pods that run all the time, with the node that they run on.
BYSTANDERS = {"calm-1": NODE, "calm-2": "node-3"}
_ASKED_S = 10.0
#: So long the call is on its way before the agent dies.
_ON_ITS_WAY_S = 0.1
#: A program that starts anew has its processor's second, and the machine may be busy.
_BACK_S = 15.0


async def play(stage: Stage, *, back_s: float = _BACK_S) -> Problems:
    """Kill it, look at the pod, start it again, look at everybody.

    Args:
        stage: Where.
        back_s: How long its chips may take to come back.
    """
    world, say = stage.world, stage.terminal.say
    await pods.remove_all(world)
    calm = [pods.manifest(name, 2, node=node) for name, node in BYSTANDERS.items()]
    await pods.create(world, *calm)
    before = await pods.settled(world, tuple(BYSTANDERS))
    failed = await _cut_off(stage)
    problems = checks.cut_off(failed, ())
    if not problems:
        stage.terminal.good(f"{POD} has failed and says so: {failed.message}")
        stage.tally.cut_off += 1
    await world.crew.restart(agent_of(NODE))
    say("the agent starts again")
    after = await _given_back(stage, back_s)
    problems += checks.given_back(after, NODE)
    problems += checks.cut_off(after.pod(POD), after.mounted(failed.uid))
    if problems:
        return problems
    stage.terminal.good("its chips are free again, by kubelet and ConfigMap")
    return await _replace(stage, before)


async def _cut_off(stage: Stage) -> PodFacts:
    """Create a pod whose Allocate its agent does not survive; return it, failed."""
    world, agent = stage.world, agent_of(NODE)
    asked = asyncio.Event()

    def freeze() -> None:
        world.crew.freeze(agent)  # so that it cannot answer before it is killed
        asked.set()

    switches = world.kubelets[NODE].switches
    switches.before_allocate = freeze
    try:
        await pods.create(world, pods.manifest(POD, 2, node=NODE))
        async with asyncio.timeout(_ASKED_S):
            await asked.wait()
        await asyncio.sleep(_ON_ITS_WAY_S)
        world.crew.kill(agent)
    finally:
        switches.before_allocate = None
    stage.terminal.say(f"the kubelet of {NODE} has asked for 2 chips: the agent dies")

    async def over() -> PodFacts | None:
        pod = next(p for p in await observer.pods(world) if p.name == POD)
        return pod if pod.phase not in {"", "Pending"} else None

    return await observer.until(over, what=f"an end for {POD}")


async def _given_back(stage: Stage, within_s: float) -> Cluster:
    """Wait until the chips are back; return the cluster, whether they are or not."""
    world = stage.world

    async def back() -> Cluster | None:
        seen = await observer.cluster(world)
        return None if checks.given_back(seen, NODE) else seen

    try:
        what = f"all chips of {NODE}"
        return await observer.until(back, what=what, within_s=within_s, pause_s=0.05)
    except observer.NotSeenError:
        return await observer.cluster(world)


async def _replace(stage: Stage, before: Cluster) -> Problems:
    world = stage.world
    await pods.create(world, pods.manifest(REPLACEMENT, 2, node=NODE))
    cluster = await pods.settled(world, (REPLACEMENT,))
    stage.terminal.say()
    stage.terminal.lines(picture.nodes(cluster))
    problems = stage.judge(cluster, (REPLACEMENT,))
    problems += checks.unmoved(before, cluster, BYSTANDERS)
    if not problems:
        stage.terminal.good(
            f"{REPLACEMENT} runs in its place; nothing of the others has moved"
        )
    return problems
