"""The whole extender, as a program, beside the sandbox's API server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.apiserver import live_settings, wake
from sandbox import clock as step_clock
from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from scheduler_core.products.table import ATLAS_800_TRAINING
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from service import clock
from tests.support import objects
from tests.support.objects import NODES, PODS
from tests.support.servers import api_server
from tests.support.until import until
from tests.support.watched import RESOURCE

REPORTS = objects.CONFIGMAPS


@dataclass(slots=True, kw_only=True)
class World:
    server: ApiServer
    api: ApiClient
    extender: aiohttp.ClientSession
    process: asyncio.subprocess.Process
    address_file: Path

    async def add_node(self, name: str, **affinity: tuple[int, ...]) -> None:
        chips = inventory.render(range(8), ATLAS_800_TRAINING)
        notes = {inventory.BASE_DEVICE_INFOS: chips}
        await self.api.create(NODES, objects.node(name, annotations=notes))
        has = objects.offered(**{RESOURCE: "8", "pods": "110"})
        await self.api.patch_status(f"{NODES}/{name}", has)
        report = deviceinfo.configmap_name(name)
        labels = dict(deviceinfo.LABELS)
        data = report_of(**affinity)
        await self.api.create(REPORTS, objects.configmap(report, data, labels=labels))

    async def add_pod(self, name: str, count: int) -> dict[str, Any]:
        return await self.api.create(PODS, objects.pod(name, count))

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        return await self.post("filter", {"Pod": pod, "NodeNames": list(names)})

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        meta = pod["metadata"]
        answer = await self.post(
            "bind",
            {
                "PodName": meta["name"],
                "PodNamespace": meta["namespace"],
                "PodUID": meta["uid"],
                "Node": node,
            },
        )
        return str(answer["Error"])

    async def post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.extender.post(f"/{verb}", json=body) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def get(self, path: str) -> tuple[int, str]:
        async with self.extender.get(path) as answer:
            return answer.status, await answer.text()


def report_of(
    available: tuple[int, ...] = tuple(range(8)), **affinity: tuple[int, ...]
) -> dict[str, str]:
    return deviceinfo.render(
        DeviceInfo(available=available, update_time=int(clock.wall_s())),
        Affinity(sequence=1, **affinity),
        ATLAS_800_TRAINING,
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with beside_an_api_server(tmp_path, "--sweep-s=0.5") as found:
        yield found


@asynccontextmanager
async def beside_an_api_server(tmp_path: Path, *arguments: str) -> AsyncIterator[World]:
    address_file = tmp_path / "address"
    await asyncio.to_thread((tmp_path / "token").write_text, "user:ascend-extender")
    async with (
        api_server() as server,
        started(server.url, address_file, *arguments) as process,
        ApiClient(server.url, "user:test") as api,
        aiohttp.ClientSession(f"http://{address_file.read_text().strip()}") as extender,
    ):
        found = World(
            server=server,
            api=api,
            extender=extender,
            process=process,
            address_file=address_file,
        )
        await until(lambda: is_ready(found))
        yield found


@asynccontextmanager
async def started(
    api_url: str, address_file: Path, *arguments: str, by: tuple[str, ...] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *by, "extender", "--listen", "127.0.0.1:0"),
        *("--api-server", api_url, "--address-file", str(address_file)),
        *("--service-account-dir", str(address_file.parent), *arguments),
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    try:
        await until(lambda: asyncio.to_thread(address_file.exists))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def is_ready(world: World) -> bool:
    return (await world.get("/readyz"))[0] == 200


def fits(world: World, pod: dict[str, Any], *names: str) -> Callable[[], Any]:
    """Whether filter offers any of the nodes, as soon as the watches show them."""

    async def ask() -> bool:
        return bool((await world.filter(pod, *names))["NodeNames"])

    return ask


async def nothing_was_known_wrongly(world: World) -> bool:
    """Whether the sweep has looked, and has found nothing."""
    seen = {"metadata": {"annotations": {"seen-at": str(clock.wall_ns())}}}
    await world.api.patch("/api/v1/nodes/n1", seen)  # its watch comes so far
    shown = (await world.get("/metrics"))[1].splitlines()
    repairs = [s for s in shown if s.startswith("ascend_extender_cache_repairs_total")]
    assert [float(each.split()[-1]) for each in repairs] == [0.0] * 6
    return any(
        s.startswith('ascend_extender_sweeps_total{result="done"}') for s in shown
    )


@pytest.mark.seed("000-01")
@pytest.mark.seed("000-02")
async def test_a_pod_is_filtered_bound_marked_and_explained(world: World) -> None:
    await world.add_node("n1", held=(0, 1), releasing=(4,))
    pod = await world.add_pod("p", 2)
    await until(fits(world, pod, "n1"))

    assert await world.bind(pod, "n1") == ""

    bound = await world.api.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"][RESOURCE] == "Ascend910-2,Ascend910-3"
    assert int(bound["metadata"]["annotations"]["predicate-time"]) > 0

    async def is_reported() -> bool:
        events = await world.api.items("/api/v1/namespaces/default/events")
        return any(
            (event["reason"], event["involvedObject"]["name"])
            == ("AscendScheduled", "p")
            for event in events
        )

    async def is_explained() -> bool:
        return '"chips": [2, 3]' in (await world.get("/v1/explain/default/p"))[1]

    await until(is_reported)
    await until(is_explained)
    await until(lambda: nothing_was_known_wrongly(world))


async def test_what_changes_in_the_cluster_changes_the_answer(world: World) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("p", 8)
    await until(fits(world, pod, "n1"))
    name = deviceinfo.configmap_name("n1")

    await world.api.patch(f"{REPORTS}/{name}", {"data": report_of(held=(5,))})

    async def is_refused() -> bool:
        answer = await world.filter(pod, "n1")
        return bool(answer["FailedNodes"] == {"n1": "without 8 free chips"})

    await until(is_refused)

    await world.api.delete(f"{REPORTS}/{name}")

    async def is_silent() -> bool:
        answer = await world.filter(pod, "n1")
        return bool(answer["FailedAndUnresolvableNodes"] == {"n1": "agent silent"})

    await until(is_silent)


async def test_settings_follow_their_configmap_without_a_restart(world: World) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("p", 8)
    await until(fits(world, pod, "n1"))
    report = {"data": report_of(available=(0, 1))}
    await world.api.patch(f"{REPORTS}/{deviceinfo.configmap_name('n1')}", report)
    said = {"self-maintain-available-card": "false"}
    config = objects.configmap(live_settings.NAME, said)

    await world.api.create(REPORTS, config)

    async def is_bounded() -> bool:
        answer = await world.filter(pod, "n1")
        return bool(answer["FailedNodes"] == {"n1": "without 8 free chips"})

    await until(is_bounded)

    wrong = {"data": {"self-maintain-available-card": "maybe"}}
    await world.api.patch(f"{REPORTS}/{live_settings.NAME}", wrong)

    async def reasons() -> set[str]:
        events = await world.api.items("/api/v1/namespaces/kube-system/events")
        return {str(event["reason"]) for event in events}

    async def is_reported() -> bool:
        told = {"AscendSettingsTaken", "AscendSettingsUnusable"}
        return await reasons() == told

    await until(is_reported)
    assert "ascend_extender_settings_unusable 1.0" in (await world.get("/metrics"))[1]
    assert await is_bounded()

    await world.api.delete(f"{REPORTS}/{live_settings.NAME}")

    await until(fits(world, pod, "n1"))


async def test_an_outage_of_the_api_server_is_said_and_survived(world: World) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("p", 8)
    await until(fits(world, pod, "n1"))

    await world.server.pause()
    said = await world.bind(pod, "n1")
    assert said.startswith("the API server gave no clear answer to the bind")
    await world.server.resume()

    async def is_bound() -> bool:
        return await world.bind(pod, "n1") == ""

    await until(is_bound)
    bound = await world.api.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"


async def test_it_decides_nothing_while_it_does_not_see_what_changes(
    world: World,
) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("p", 8)
    await until(fits(world, pod, "n1"))

    await world.server.pause()

    async def is_refused() -> bool:
        answer = await world.filter(pod, "n1")
        said = "the extender waits until it sees the cluster's "
        return bool(said in answer["FailedAndUnresolvableNodes"].get("n1", ""))

    await until(is_refused)

    await world.server.resume()
    await until(fits(world, pod, "n1"))

    async def is_marked() -> bool:
        node = await world.api.get("/api/v1/nodes/n1")
        return wake.ANNOTATION in node["metadata"]["annotations"]

    await until(is_marked)


async def test_it_stops_when_told_and_leaves_nothing_behind(world: World) -> None:
    world.process.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(world.process.wait(), 10) == 0
    assert not world.address_file.exists()


async def test_after_a_restart_it_knows_what_is_taken(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("n1")
    first, second = [await world.add_pod(name, 4) for name in ("a", "b")]
    await until(fits(world, first, "n1"))
    assert await world.bind(first, "n1") == ""

    other = tmp_path / "other"
    async with (
        started(world.server.url, other),
        aiohttp.ClientSession(f"http://{other.read_text().strip()}") as extender,
    ):
        world.extender, before = extender, world.extender
        await until(lambda: is_ready(world))
        assert await world.bind(second, "n1") == ""
        world.extender = before

    bound = await world.api.get(f"{PODS}/b")
    assert bound["metadata"]["annotations"][RESOURCE] == (
        "Ascend910-4,Ascend910-5,Ascend910-6,Ascend910-7"
    )


async def test_a_clock_that_is_hours_ahead_makes_no_agent_silent(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("n1")
    pod = await world.add_pod("p", 8)
    ahead, other = tmp_path / "ahead", tmp_path / "other"
    step_clock.begin(ahead)
    step_clock.step(ahead, 10_000)
    async with (
        started(world.server.url, other, by=("sandbox.clock", str(ahead))),
        aiohttp.ClientSession(f"http://{other.read_text().strip()}") as extender,
    ):
        world.extender, before = extender, world.extender
        await until(lambda: is_ready(world))
        assert (await world.filter(pod, "n1"))["NodeNames"] == ["n1"]

        await world.add_node("n2")
        await until(fits(world, pod, "n2"))
        world.extender = before


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (["--nonsense", "1"], "--nonsense"),
        (["--api-server", "ftp://x"], "http"),
        (["--service-account-dir", "/nowhere"], "/nowhere/token"),
        (
            ["--api-server", "http://127.0.0.1:1", "--service-account-dir", "/nowhere"],
            "/nowhere/token",
        ),
    ],
)
async def test_wrong_settings_end_it_with_a_sentence_and_two(
    told: list[str], text: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", *told), stderr=asyncio.subprocess.PIPE
    )

    _, stderr = await process.communicate()

    assert process.returncode == 2
    assert text in stderr.decode()
    assert "Traceback" not in stderr.decode()
