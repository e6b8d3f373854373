"""How soon a fault is known, and a node served: the real agent on a libdcmi of ours.

One node of sixteen chips whose agent asks a libdcmi.so without hardware, compiled here
(`tests/agent/devices/fake_dcmi`), as it would ask Huawei's: in a process of its own,
which is called back when a chip fails.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.node import filled
from benchmarks.table import Row, percentile
from sandbox.world import Commands, Machine, Node, World, agent_of, running
from sandbox.world.world import agent_command
from tests.agent.devices import fake_machine
from tests.agent.devices.fake_machine import FakeMachine

NODE = "node-1"
PRODUCT = "atlas-a3-16"
RESOURCE = "huawei.com/Ascend910"
CHIPS = 16
PODS = 100
_SOURCE = Path(__file__).parents[1] / "tests/agent/devices/fake_dcmi/dcmi.c"
_CODE = "80818C00"
_FAULTS = 10
_STARTS = 5
_LOOK_S = 0.002
_PATIENCE_S = 120.0
#: Imports, first lists and the first look at the chips are over by then.
_STEADY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A world, and the machine of its node."""

    world: World
    machine: FakeMachine

    @property
    def agent(self) -> psutil.Process:
        """The agent's process, as started last."""
        return psutil.Process(self.world.crew.program(agent_of(NODE)).process.pid)

    @property
    def worker(self) -> psutil.Process:
        """The process that has the library."""
        [found] = self.agent.children()
        return found

    async def allocatable(self) -> int:
        """How many chips the kubelet gives out."""
        node = await self.world.api.get(f"/api/v1/nodes/{NODE}")
        return int(node["status"].get("allocatable", {}).get(RESOURCE, "0"))

    async def unhealthy(self) -> int:
        """How many chips the ConfigMap tells as unhealthy or recovering."""
        report = await self.world.api.get(
            f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{NODE}"
        )
        lists = json.loads(report["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
        names = (lists[f"{RESOURCE}-Unhealthy"], lists[f"{RESOURCE}-Recovering"])
        return sum(len(text.split(",")) for text in names if text)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Have a node with such an agent."""
    with tempfile.TemporaryDirectory(prefix="hw-") as directory:
        library = Path(directory) / "libdcmi.so"
        compiler = shutil.which("cc") or "cc"
        options = ("-O1", "-shared", "-fPIC", "-pthread")
        command = [compiler, *options, "-o", str(library), str(_SOURCE)]
        subprocess.run(command, check=True)  # noqa: ASYNC221, S603  # nothing runs yet
        machine = fake_machine.superpod_a3(Path(directory) / "machine")
        os.environ |= machine.environment

        def asking(node: Node) -> tuple[str, ...]:
            told = ("--driver", "dcmi", "--dcmi-library", str(library))
            return (*agent_command(node), *told, "--product", PRODUCT)

        nodes = [Machine(name=NODE, product=PRODUCT)]
        async with running(nodes, Commands(agent=asking)) as world:
            yield Bench(world=world, machine=machine)


async def full(bench: Bench) -> None:
    """Have a hundred pods run, and all chips given out."""
    await filled(
        bench.world,
        {
            f"bench-{number}": {RESOURCE: "1"} if number < CHIPS else {}
            for number in range(PODS)
        },
    )
    await asyncio.sleep(_STEADY_S)


def rows() -> list[Row]:
    """Measure. Takes about two minutes."""
    return asyncio.run(_rows())


async def _rows() -> list[Row]:
    async with bench() as it:
        faults = [await _fault(it, chip) for chip in range(_FAULTS)]
        starts = [await _start(it) for _ in range(_STARTS)]
        restarts = [await _kubelet(it) for _ in range(_STARTS)]
        await full(it)
        sizes = [each.memory_info().rss / 2**20 for each in (it.agent, it.worker)]
    kubelet, report = zip(*faults, strict=True)
    started, spent = zip(*starts, strict=True)
    return [
        _soon("chip fault event to kubelet list, worst of 10", 0.2, kubelet),
        _soon("chip fault event to ConfigMap, worst of 10", 1.0, report),
        _soon("agent's start to registered, warm, worst of 5", 1.5, started, spent),
        _soon("kubelet's restart to registered, worst of 5", 1.0, restarts),
        _size("agent memory (RSS), libdcmi, 16 chips held, 100 pods", 70, sizes[0]),
        _size("driver worker memory (RSS), 16 chips", 25, sizes[1]),
    ]


def _soon(
    figure: str, goal_s: float, samples: Sequence[float], cpu_s: Sequence[float] = ()
) -> Row:
    worst = max(samples)
    value = f"{worst:.2f} s (median {percentile(samples, 0.5):.2f} s"
    if cpu_s:
        value += f"; {percentile(cpu_s, 0.5):.2f} s of processor time"
    return Row(
        figure=figure,
        goal=f"≤ {goal_s:g} s",
        value=f"{value})",
        passed=worst <= goal_s,
    )


def _size(figure: str, goal_mib: float, found_mib: float) -> Row:
    return Row(
        figure=figure,
        goal=f"≤ {goal_mib:g} MiB",
        value=f"{found_mib:.1f} MiB",
        passed=found_mib <= goal_mib,
    )


async def _fault(it: Bench, chip: int) -> tuple[float, float]:
    """Let a chip fail by an event; return how soon kubelet and ConfigMap knew."""
    await asyncio.sleep(1.5)  # so that no write of the last change holds this one up
    it.machine.say(chip // 2, chip % 2, codes=_CODE)
    started = time.perf_counter()
    it.machine.event(chip, _CODE, 3, 1)
    found = await asyncio.gather(
        _took(started, it.allocatable, lambda count: count == CHIPS - 1),
        _took(started, it.unhealthy, lambda count: count == 1),
    )
    it.machine.say(chip // 2, chip % 2, codes="")
    await _took(started, it.allocatable, lambda count: count == CHIPS)
    await _took(started, it.unhealthy, lambda count: count == 0)
    return found[0], found[1]


async def _took(
    started: float, look: Callable[[], Awaitable[int]], is_so: Callable[[int], bool]
) -> float:
    """Look until it is so; return how long after `started` that was."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            if is_so(await look()):
                return time.perf_counter() - started
            await asyncio.sleep(_LOOK_S)


async def _start(it: Bench) -> tuple[float, float]:
    """Kill the agent, and start it.

    Returns:
        How soon the kubelet offers its chips, and what agent and worker have spent.
    """
    it.world.crew.kill(agent_of(NODE))
    await it.world.crew.ended(agent_of(NODE))
    await _took(0.0, it.allocatable, lambda count: count == 0)
    started = time.perf_counter()
    await it.world.crew.restart(agent_of(NODE))
    took = await _took(started, it.allocatable, lambda count: count == CHIPS)
    spent = [each.cpu_times() for each in (it.agent, it.worker)]
    await asyncio.sleep(1.0)
    return took, sum(each.user + each.system for each in spent)


async def _kubelet(it: Bench) -> float:
    """Restart the kubelet; return how soon it has the agent's registration again."""
    before = await _registrations(it)
    kubelet = it.world.kubelets[NODE]
    await kubelet.stop()
    await kubelet.start()
    started = time.perf_counter()
    took = await _took(started, lambda: _registrations(it), lambda now: now > before)
    await _took(started, it.allocatable, lambda count: count == CHIPS)
    await asyncio.sleep(1.0)
    return took


async def _registrations(it: Bench) -> int:
    name = "ascend_agent_registrations_total "
    text = await it.world.metrics(NODE)
    return next(
        int(float(line.removeprefix(name)))
        for line in text.splitlines()
        if line.startswith(name)
    )
