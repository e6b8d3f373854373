"""Fifty agents on one API server: how much each of them asks, and how soon all serve.

The sandbox with fifty nodes, each with the real agent; kubelets and API server are in
this process. What an agent asks does not depend on how many there are, so that a
thousand are reckoned from it; what an API server of Kubernetes makes of it is not
measured here.
"""

import asyncio
import os
import time

import psutil

from benchmarks.table import Row
from sandbox.world import World, agent_of, running

AGENTS = 50
MANY = 1_000
_WATCHED_S = 120.0


def rows() -> list[Row]:
    """Measure. Takes four minutes."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    names = [f"node-{number}" for number in range(1, AGENTS + 1)]
    begun = time.perf_counter()
    async with running(names) as world:
        up_s = time.perf_counter() - begun
        await asyncio.sleep(30)
        first = await _requests(world)
        cpu = _cpu_s(world)
        began = time.perf_counter()
        await asyncio.sleep(_WATCHED_S)
        took = time.perf_counter() - began
        asked = await _requests(world) - first
        busy = (_cpu_s(world) - cpu) / took / AGENTS
        sizes = [_process(world, name).memory_info().rss / 2**20 for name in names]
    each = first / AGENTS
    hourly = asked / AGENTS * 3600 / took
    return [
        Row(
            figure=f"{AGENTS} agents: from nothing to all of them serving",
            goal="none",
            value=f"{up_s:.0f} s on {os.cpu_count()} processors",
            passed=True,
        ),
        Row(
            figure=f"{AGENTS} agents: requests of one, from its start to 30 s after "
            "the last's",
            goal="none",
            value=f"{each:.0f}",
            passed=True,
        ),
        Row(
            figure=f"{AGENTS} agents: requests of one afterwards, an hour",
            goal="≤ 40",
            value=f"{hourly:.0f} ({hourly * MANY / 3600:.1f} a second of {MANY:,})",
            passed=hourly <= 40,
        ),
        Row(
            figure=f"{AGENTS} agents: CPU and memory (RSS) of one, no pods",
            goal="≤ 0.5 % of a core, ≤ 70 MiB",
            value=f"{busy:.2%}, at most {max(sizes):.1f} MiB",
            passed=busy <= 0.005 and max(sizes) <= 70,
        ),
    ]


def _process(world: World, node: str) -> psutil.Process:
    return psutil.Process(world.crew.program(agent_of(node)).process.pid)


def _cpu_s(world: World) -> float:
    """What all agents have spent."""
    spent = [_process(world, node).cpu_times() for node in world.nodes]
    return sum(each.user + each.system for each in spent)


async def _requests(world: World) -> float:
    """What all agents have asked of the API server."""
    found = 0.0
    for node in world.nodes:
        text = await world.metrics(node)
        found += sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("ascend_agent_api_requests_total")
        )
    return found
