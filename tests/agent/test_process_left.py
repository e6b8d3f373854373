"""A pod has gone, a process of it stays: end to end, with the programs themselves."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent.status import socket as status_socket
from sandbox.world import World, running
from tests.agent.site import NODE, REPORT, page_of
from tests.support.objects import PODS, pod
from tests.support.until import until


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="le-") as root:  # tmp_path is too long
        async with running([NODE], below=Path(root)) as world:
            yield world


@pytest.fixture
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that does not end by itself."""
    process = await asyncio.create_subprocess_exec("sleep", "600")
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


def show(world: World, *processes: tuple[int, int]) -> None:
    """Have the driver see these processes: (chip, pid)."""
    node = world.nodes[NODE]
    uses = [{"chip": chip, "pid": pid} for chip, pid in processes]
    draft = node.driver_file.with_suffix(".draft")
    # JSON is YAML
    draft.write_text(json.dumps({"product": node.machine.product, "processes": uses}))
    draft.replace(node.driver_file)


async def create(world: World, name: str, count: int) -> None:
    await world.api.create(PODS, pod(name, count))


async def chips_of(world: World, name: str) -> str:
    """The chips of a pod, once everybody knows that it has them."""
    pod = await world.api.get(f"{PODS}/{name}")
    return str(pod["metadata"].get("annotations", {}).get("huawei.com/AscendReal", ""))


async def affinity(world: World) -> dict[str, Any]:
    report = await world.api.get(REPORT)
    found: dict[str, Any] = json.loads(report["data"]["AscendAffinity"])
    return found


async def events(world: World) -> list[str]:
    """What was said of processes that keep chips from being free."""
    found = await world.api.items("/api/v1/namespaces/default/events")
    told = [each["message"] for each in found if each["reason"] == "NpuStillInUse"]
    return sorted(told)


async def metric(world: World) -> list[str]:
    page = await page_of(world.nodes[NODE].address_file, "metrics")
    lines = page.splitlines()
    return [
        line
        for line in lines
        if line.startswith("ascend_agent_releasing_chip_processes{")
    ]


async def status(world: World) -> dict[str, Any]:
    """What `ascend-agent status` is told."""
    socket = world.nodes[NODE].state_dir / status_socket.NAME
    found = await asyncio.to_thread(status_socket.ask, socket)
    return dict(found)


@pytest.mark.seed("004-13")
@pytest.mark.timeout(120)
async def test_its_chips_are_nobodys_until_it_has_ended(
    world: World, process: asyncio.subprocess.Process
) -> None:
    await create(world, "train", 8)
    await until(lambda: chips_of(world, "train"))
    show(world, (0, process.pid), (1, process.pid))
    await until(lambda: has_process_seen(world, process.pid))

    await world.api.delete(f"{PODS}/train")
    await until(lambda: affinity(world), lambda found: len(found["releasing"]) == 2)
    await create(world, "half", 4)
    half = await until(lambda: chips_of(world, "half"))
    [told, other] = await until(lambda: events(world), lambda found: len(found) == 2)
    shown = await metric(world)
    chips = (await status(world))["chips"]
    await create(world, "next", 4)  # two of the other ring's chips are free
    await until(lambda: is_refused(world, "next"))

    process.kill()
    await process.wait()
    show(world)
    served = await until(lambda: chips_of(world, "next"))
    await until(lambda: has_nothing_to_release(world))

    assert half == "Ascend910-4,Ascend910-5,Ascend910-6,Ascend910-7"
    named = f"process {process.pid} (sleep, uid "
    assert told.startswith(
        f"chip 0 is not free, though pod default/train has gone: {named}"
    )
    assert other.startswith("chip 1 is not free")
    assert sorted(shown) == [
        f'ascend_agent_releasing_chip_processes{{chip="{chip}"}} 1.0' for chip in (0, 1)
    ]
    users = {c["chip"]: [who["name"] for who in c["strayProcesses"]] for c in chips}
    assert users == {chip: ["sleep"] if chip < 2 else [] for chip in range(8)}
    assert served == "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3"


async def has_process_seen(world: World, pid: int) -> bool:
    chips = (await status(world))["chips"]
    return all(pid in chips[chip]["pids"] for chip in (0, 1))


async def has_nothing_to_release(world: World) -> bool:
    found = await affinity(world)
    return (len(found["held"]), found["releasing"]) == (8, [])


async def is_refused(world: World, name: str) -> bool:
    """Whether the scheduler has found no place for a pod."""
    status = (await world.api.get(f"{PODS}/{name}"))["status"]
    return any(
        (each["type"], each["status"]) == ("PodScheduled", "False")
        for each in status.get("conditions", ())
    )
