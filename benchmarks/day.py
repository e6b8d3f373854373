"""As much as comes and goes on a node in a day, in minutes: what it leaves behind.

Eight chips, and a pod on each for ten minutes: 1,152 starts and ends in a day, driven
here through the real agent as fast as they go. So is all that a clock brings in a day:
heartbeats and correction passes come so much more often. In each quarter, chips break
and recover, and the API server forgets its history. After each quarter, with nothing on
the node, it is looked at what the agent has.
"""

import asyncio

import psutil

from benchmarks import crowd
from benchmarks.crowd import CHIPS, PRODUCT, Times
from benchmarks.node import NODE, STEADY_S, agent
from benchmarks.table import Row
from sandbox.faults.inject import Breakage
from sandbox.faults.kinds import read
from sandbox.world import Commands, Machine, Node, World, running
from sandbox.world.world import agent_command

QUARTERS = 4
STARTS = 24 * 6 * 8
ROUNDS = STARTS // CHIPS // QUARTERS + 1
#: Of each kind in a quarter; six hours of them.
FAULTS = 6
#: A day in some two minutes: 288 heartbeats, 1,440 passes.
_CLOCKS = ("--heartbeat-s", "1", "--reconcile-period-s", "0.1")
#: What Python keeps for later is no leak. Unit: bytes.
_GROWTH = 3 << 20


def rows() -> list[Row]:
    """Measure. Takes some minutes."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    machine = Machine(name=NODE, product=PRODUCT)
    seen: list[tuple[int, int, int]] = []
    times = Times()
    async with running([machine], Commands(agent=_command)) as world:
        watching = asyncio.create_task(crowd.watch(world, times))
        for quarter in range(QUARTERS):
            await _quarter(world, times, quarter)
            await asyncio.sleep(STEADY_S)
            seen.append(_seen(agent()))
        watching.cancel()
    rss, descriptors, threads = zip(*seen, strict=True)
    # the first quarter is where imports and caches end
    is_flat = (
        max(rss[1:]) - rss[0] <= _GROWTH
        and max(descriptors) - min(descriptors) <= 2
        and max(threads) - min(threads) <= 1
    )
    shown = ", ".join(f"{each / 2**20:.1f}" for each in rss)
    return [
        Row(
            figure=f"{len(times.confirmed):,} starts and ends, after each quarter",
            goal="flat",
            value=f"RSS {shown} MiB; descriptors {_listed(descriptors)}; "
            f"threads {_listed(threads)}",
            passed=is_flat and not times.failed,
        )
    ]


def _command(node: Node) -> list[str]:
    return [*agent_command(node), *_CLOCKS]


async def _quarter(world: World, times: Times, quarter: int) -> None:
    breakage = Breakage(world)
    for number in range(ROUNDS):
        names = [f"pod-{quarter}-{number}-{chip}" for chip in range(CHIPS)]
        await crowd.come(world, times, map(crowd.pod, names, range(CHIPS)))
        await crowd.until(times, names)
        await crowd.go(world, names)
    for number in range(FAULTS):
        await breakage.begin(read("api-410", {}, [NODE]))
        broken = {"node": NODE, "chips": [number], "for": "500ms"}
        await breakage.begin(read("chip-broken", broken, [NODE]))
        await asyncio.sleep(1)
    await breakage.end_all()


def _seen(program: psutil.Process) -> tuple[int, int, int]:
    return program.memory_info().rss, program.num_fds(), program.num_threads()


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
