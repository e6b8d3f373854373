"""Step 4: a chip breaks under a job of two pods; the job moves, and goes on.

Nobody can give a running container another chip, so its pod has to end. The extender
keeps chips for all pods that have to go, then evicts them, and their Job makes them
again: each under its number, on the place that was kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from sandbox.demo import picture
from sandbox.demo.measurements import in_ms
from sandbox.demo.stage import Stage
from sandbox.inspect import checks, observer, pods
from sandbox.inspect.checks import Place, Problems
from sandbox.inspect.facts import Chips, Cluster, Mount
from sandbox.inspect.terminal import Style
from sandbox.jobs import JobController
from sandbox.world import CHIP_COUNT, World

_Read = Callable[[World, str], Awaitable[object]]
JOB = "train"
#: Its pods, by the number that each keeps.
NAMES = (f"{JOB}-0", f"{JOB}-1")
#: The pod whose chip breaks, and which of its chips.
UNLUCKY, CHIP = NAMES[0], 3
#: What the pod is told, in this order.
_REASONS = ("NpuUnhealthy", "AscendFaultEvicted")
#: Kubernetes' own Job controller waits ten seconds after a pod has failed, and twice as
#: long after each further one.
_PAUSE_S = 0.2
#: Recovery takes the agent's hold-off of 1 s besides.
_WITHIN_S = 5.0
#: pod-resources answers 100 calls a second, to all callers together.
_LOOK_S = 0.015


async def play(stage: Stage, *, moved_s: float = 30.0) -> Problems:
    """Run a job, break a chip of it, look at it again, mend the chip.

    Args:
        stage: Where.
        moved_s: How long the job may take to move.
    """
    world, jobs = stage.world, stage.world.jobs
    if jobs is None:
        return ("the Job controller is not ours: nothing makes pods again",)
    await pods.remove_all(world)
    with _impatient(jobs):
        await world.api.create(
            observer.JOBS, pods.job(JOB, len(NAMES), CHIP_COUNT, "grace")
        )
        before = await _settled(stage, Cluster(nodes=(), pods=(), mounts=()))
        problems = await _move(stage, before, moved_s)
        await world.api.delete(f"{observer.JOBS}/{JOB}", propagation="Background")
        await pods.until_gone(world, [pod.name for pod in await observer.pods(world)])
    return problems


async def _move(stage: Stage, before: Cluster, moved_s: float) -> Problems:
    """Break the chip, and see what becomes of the job."""
    say, loop = stage.terminal.say, asyncio.get_running_loop()
    say(f"a Job runs, with {CHIP_COUNT} chips for each of its two pods:")
    stage.terminal.lines(picture.nodes(before, _numbered))
    places = _places(before)
    node = places[UNLUCKY].node
    (spare,) = stage.world.nodes.keys() - {place.node for place in places.values()}
    say()
    say(f"chip {CHIP} of {node} breaks (its driver's file is edited)")
    begun_s = loop.time()
    stage.world.nodes[node].set_faults((CHIP,))
    await _follow(stage, node, (CHIP,))
    await _tell(stage, before, moved_s)
    say("both pods go, and the Job makes them again (elsewhere after 10 s or more)")
    after = await _settled(stage, before, within_s=moved_s)
    took_s = loop.time() - begun_s
    say()
    stage.terminal.lines(picture.nodes(after, _numbered))
    kept = {**places, UNLUCKY: Place(spare, tuple(range(CHIP_COUNT)))}
    problems = checks.unhealthy(after.node(node), (CHIP,))
    problems += checks.placed(_places(after), kept)
    problems += stage.judge(after, tuple(pod.name for pod in after.pods))
    if not problems:
        stage.tally.event_to_job_s.append(took_s)
        stage.terminal.good(
            f"{UNLUCKY} runs on {spare}, {NAMES[1]} is back on its chips, and each has "
            f"its number: the job goes on {took_s:.1f} s after the fault"
        )
    say()
    say(f"chip {CHIP} recovers")
    stage.world.nodes[node].set_faults(())
    await _follow(stage, node, ())
    return problems + checks.unhealthy(await observer.node(stage.world, node), ())


@contextmanager
def _impatient(jobs: JobController) -> Iterator[None]:
    """Have the Job controller make pods again without a long pause."""
    usual_s, jobs.first_pause_s = jobs.first_pause_s, _PAUSE_S
    try:
        yield
    finally:
        jobs.first_pause_s = usual_s


async def _settled(stage: Stage, before: Cluster, *, within_s: float = 10.0) -> Cluster:
    """Wait until the job runs with other pods than before."""
    old = {pod.uid for pod in before.pods}

    async def probe() -> Cluster | None:
        seen = await observer.cluster(stage.world)
        ready = [pod for pod in seen.pods if pod.is_confirmed and pod.uid not in old]
        is_whole = len(ready) == len(seen.pods) == len(NAMES)
        return seen if is_whole and not checks.agreed(seen) else None

    what = f"{' and '.join(NAMES)} with their chips"
    return await observer.until(probe, what=what, within_s=within_s, pause_s=0.05)


async def _tell(stage: Stage, before: Cluster, within_s: float) -> None:
    """Show what the pod with the broken chip is told."""
    pod = next(pod for pod in before.pods if _number(pod.name) == UNLUCKY)
    for reason in _REASONS:
        text = await observer.until(
            partial(observer.event, stage.world, pod, reason),
            what=f"{reason} on {pod.name}",
            within_s=within_s,
        )
        stage.terminal.say(f"{UNLUCKY} is told {reason}:")
        stage.terminal.say(f"  {text}", Style.DIM)


def _places(cluster: Cluster) -> Mapping[str, Place]:
    """Return {pod by its number: where it is, and what its container sees}."""
    return {
        _number(pod.name): Place(pod.node, cluster.mounted(pod.uid))
        for pod in cluster.pods
    }


def _numbered(mount: Mount) -> str:
    return _number(mount.pod)


def _number(name: str) -> str:
    """Return the name of a Job's pod without its random end."""
    return name.rpartition("-")[0]


async def _follow(stage: Stage, node: str, broken: Chips) -> None:
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
            _time(partial(read, world, node), wanted, what=f"{what} without {broken}")
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
