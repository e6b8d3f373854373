"""What the agent of a node costs on which nothing happens: the real program.

One node with eight pods of a chip each, all running; then a minute is watched.
"""

import asyncio
import time

import psutil

from benchmarks.node import NODE, RESOURCE, STEADY_S, agent, filled
from benchmarks.table import Row
from sandbox.world import running

WATCHED_S = 60.0
#: A hundredth of a core, halved: what a node may pay for an agent that waits.
CPU_GOAL = 0.005


def rows() -> list[Row]:
    """Measure. Takes a minute and a half."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    async with running([NODE]) as world:
        await filled(world, {f"idle-{n}": {RESOURCE: "1"} for n in range(8)})
        await asyncio.sleep(2 * STEADY_S)
        program = agent()
        before, began = _seen(program), time.perf_counter()
        await asyncio.sleep(WATCHED_S)
        after, took = _seen(program), time.perf_counter() - began
    share = (after[0] - before[0]) / took
    grown = ", ".join(
        f"{name} {then} → {now}"
        for name, then, now in zip(
            ("descriptors", "threads"), before[1:3], after[1:3], strict=True
        )
    )
    return [
        Row(
            figure="agent of an idle node, 8 chips held: CPU over a minute",
            goal="≤ 0.5 % of a core",
            value=f"{share:.2%} ({grown}, RSS {after[3] / 2**20:.1f} MiB)",
            passed=share <= CPU_GOAL,
        )
    ]


def _seen(program: psutil.Process) -> tuple[float, int, int, int]:
    """CPU seconds, descriptors, threads, bytes of RSS."""
    spent = program.cpu_times()
    return (
        spent.user + spent.system,
        program.num_fds(),
        program.num_threads(),
        program.memory_info().rss,
    )
