"""The whole extender, as a program, beside the sandbox's API server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
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
from service import clock
from tests.support import metric_pages, objects
from tests.support.objects import NODES, PODS
from tests.support.servers import api_server
from tests.support.until import equal, until
from tests.support.watched import RESOURCE, TRAINING, texts

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
        report = objects.report(name, reported(**affinity))
        await self.api.create(REPORTS, report)

    async def add_pod(self, name: str, count: int) -> dict[str, Any]:
        return await self.api.create(PODS, objects.pod(name, count))

    async def add_fitting_pod(
        self, count: int = 8, **affinity: tuple[int, ...]
    ) -> dict[str, Any]:
        """Add the node n1 and the pod p; return p as soon as it may go to n1."""
        await self.add_node("n1", **affinity)
        pod = await self.add_pod("p", count)
        await self.until_fits(pod, "n1")
        return pod

    async def until_fits(self, pod: dict[str, Any], node: str) -> None:
        """Wait until the watches have shown that a pod may go to a node."""
        await until(lambda: self.filter(pod, node), lambda found: found["NodeNames"])

    async def until_refused(self, pod: dict[str, Any], key: str, text: str) -> None:
        """Wait until filter has this text for n1 under this key."""
        await until(
            lambda: self.filter(pod, "n1"), lambda found: found[key] == {"n1": text}
        )

    async def filter(self, pod: dict[str, Any], *names: str) -> dict[str, Any]:
        return await self.post("filter", {"Pod": pod, "NodeNames": list(names)})

    async def bind(self, pod: dict[str, Any], node: str) -> str:
        answer = await self.post("bind", objects.bind_args(pod, node))
        return str(answer["Error"])

    async def post(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.extender.post(f"/{verb}", json=body) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def get(self, path: str) -> tuple[int, str]:
        async with self.extender.get(path) as answer:
            return answer.status, await answer.text()

    async def events(self, namespace: str = "default") -> list[tuple[str, str, str]]:
        """Return reason, object's name and message of each event."""
        found = await self.api.items(f"/api/v1/namespaces/{namespace}/events")
        return [
            (event["reason"], event["involvedObject"]["name"], event["message"])
            for event in found
        ]

    async def until_event(self, reason: str, name: str) -> None:
        """Wait until a pod is told for this reason."""
        await until(
            self.events,
            lambda found: (reason, name) in [event[:2] for event in found],
        )


def reported(**chips: Any) -> dict[str, str]:
    """What an agent reports now; `chips` are parts of a `Line`."""
    return texts(replace(TRAINING, **chips), update_time=clock.wall_s())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with beside_an_api_server(tmp_path, "--resync-s=0.5") as found:
        yield found


@asynccontextmanager
async def beside_an_api_server(
    tmp_path: Path,
    *arguments: str,
    reach: Callable[[str], AbstractAsyncContextManager[str]] = nullcontext,
) -> AsyncIterator[World]:
    """An extender beside an API server.

    Args:
        tmp_path: Folder for its files.
        arguments: Of the extender.
        reach: Given the API server's URL, yields that by which the extender reaches it.
    """
    address_file = tmp_path / "address"
    await asyncio.to_thread((tmp_path / "token").write_text, "user:ascend-extender")
    async with (
        api_server() as server,
        reach(server.url) as url,
        started(url, address_file, *arguments) as process,
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


async def nothing_was_known_wrongly(world: World) -> bool:
    """Whether the resync has looked, and has found nothing."""
    seen = {"metadata": {"annotations": {"seen-at": str(clock.wall_ns())}}}
    await world.api.patch("/api/v1/nodes/n1", seen)  # its watch comes so far
    shown = (await world.get("/metrics"))[1].splitlines()
    repairs = [s for s in shown if s.startswith("ascend_extender_cache_repairs_total")]
    assert [float(each.split()[-1]) for each in repairs] == [0.0] * 6
    return any(
        s.startswith('ascend_extender_resyncs_total{result="done"}') for s in shown
    )


@pytest.mark.seed("000-01")
@pytest.mark.seed("000-02")
async def test_a_pod_is_filtered_bound_marked_and_explained(world: World) -> None:
    pod = await world.add_fitting_pod(2, held=(0, 1), releasing=(4,))

    assert await world.bind(pod, "n1") == ""

    bound = await world.api.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"][RESOURCE] == "Ascend910-2,Ascend910-3"
    assert int(bound["metadata"]["annotations"]["predicate-time"]) > 0

    await world.until_event("AscendScheduled", "p")
    await until(
        lambda: world.get("/v1/explain/default/p"),
        lambda found: '"chips": [2, 3]' in found[1],
    )
    await until(lambda: nothing_was_known_wrongly(world))


async def test_what_changes_in_the_cluster_changes_the_answer(world: World) -> None:
    pod = await world.add_fitting_pod()
    name = deviceinfo.configmap_name("n1")

    await world.api.patch(f"{REPORTS}/{name}", {"data": reported(held=(5,))})
    await world.until_refused(pod, "FailedNodes", "without 8 free chips")

    await world.api.delete(f"{REPORTS}/{name}")
    await world.until_refused(pod, "FailedAndUnresolvableNodes", "agent silent")


async def test_settings_follow_their_configmap_without_a_restart(world: World) -> None:
    pod = await world.add_fitting_pod()
    report = {"data": reported(there=(0, 1))}
    await world.api.patch(f"{REPORTS}/{deviceinfo.configmap_name('n1')}", report)
    said = {"self-maintain-available-card": "false"}
    config = objects.configmap(live_settings.NAME, said)

    await world.api.create(REPORTS, config)
    await world.until_refused(pod, "FailedNodes", "without 8 free chips")

    wrong = {"data": {"self-maintain-available-card": "maybe"}}
    await world.api.patch(f"{REPORTS}/{live_settings.NAME}", wrong)
    await until(
        lambda: world.events("kube-system"),
        lambda found: (
            {reason for reason, _, _ in found}
            == {"AscendSettingsTaken", "AscendSettingsUnusable"}
        ),
    )
    assert "ascend_extender_settings_unusable 1.0" in (await world.get("/metrics"))[1]
    answer = await world.filter(pod, "n1")
    assert answer["FailedNodes"] == {"n1": "without 8 free chips"}

    await world.api.delete(f"{REPORTS}/{live_settings.NAME}")

    await world.until_fits(pod, "n1")


async def test_an_outage_of_the_api_server_is_said_and_survived(world: World) -> None:
    pod = await world.add_fitting_pod()

    await world.server.pause()
    said = await world.bind(pod, "n1")
    assert said.startswith("the API server gave no clear answer to the bind")
    await world.server.resume()
    await until(lambda: world.bind(pod, "n1"), equal(""))
    bound = await world.api.get(f"{PODS}/p")
    assert bound["spec"]["nodeName"] == "n1"


async def test_it_decides_nothing_while_it_does_not_see_what_changes(
    world: World,
) -> None:
    pod = await world.add_fitting_pod()

    await world.server.pause()
    said = "the extender waits until it sees the cluster's "
    await until(
        lambda: world.filter(pod, "n1"),
        lambda found: said in found["FailedAndUnresolvableNodes"].get("n1", ""),
    )

    await world.server.resume()
    await world.until_fits(pod, "n1")
    await until(
        lambda: world.api.get("/api/v1/nodes/n1"),
        lambda node: wake.ANNOTATION in node["metadata"]["annotations"],
    )


async def test_it_stops_when_told_and_leaves_nothing_behind(world: World) -> None:
    world.process.send_signal(signal.SIGTERM)

    assert await asyncio.wait_for(world.process.wait(), 10) == 0
    assert not world.address_file.exists()


async def test_after_a_restart_it_knows_what_is_taken(
    world: World, tmp_path: Path
) -> None:
    await world.add_node("n1")
    first, second = [await world.add_pod(name, 4) for name in ("a", "b")]
    await world.until_fits(first, "n1")
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
        await world.until_fits(pod, "n2")
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


async def test_its_metrics_hold_the_conventions_and_are_on_its_page(
    world: World,
) -> None:
    await world.add_fitting_pod()

    status, text = await world.get("/metrics")

    page = (Path(__file__).parents[2] / "extender" / "README.md").read_text()
    assert (status, metric_pages.problems(text, page, "ascend_extender")) == (200, [])
    assert "process_resident_memory_bytes" in text
