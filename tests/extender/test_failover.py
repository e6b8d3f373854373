"""Two extenders as programs, one lease, and a scheduler that calls whoever is ready."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.scheduler import ExtenderSettings, SchedulingLoop
from tests.extender.replicas import Replicas
from tests.extender.test_app import World, started
from tests.extender.test_gangs_over_http import add_member, nodes_of
from tests.support.objects import PODS
from tests.support.until import until
from tests.support.watched import RESOURCE

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ascend-extender"


@dataclass(slots=True)
class Binds:
    """What stands before the API server: it may hold binds back."""

    #: so many more are let through
    left: float = float("inf")
    #: held back now
    held: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @web.middleware
    async def pass_on(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        if request.path.endswith("/binding"):
            if self.left < 1:
                self.held += 1
                await asyncio.Event().wait()  # until the caller goes
            self.left -= 1
        return await handler(request)


@asynccontextmanager
async def replicas(
    tmp_path: Path, binds: Binds, *arguments: str
) -> AsyncIterator[tuple[World, Replicas]]:
    """An API server, the extenders a (first) and b, and a scheduler before them."""
    async with AsyncExitStack() as stack:
        server = ApiServer(middlewares=[binds.pass_on])
        await server.start()
        stack.push_async_callback(server.stop)
        found = Replicas()
        processes: dict[str, asyncio.subprocess.Process] = {}
        for name in ("a", "b"):
            folder = tmp_path / name
            await asyncio.to_thread(folder.mkdir)
            (folder / "token").write_text("user:ascend-extender")
            told = ("--lease", "ascend-extender", "--identity", name, *arguments)
            process = started(server.url, folder / "address", *told)
            processes[name] = await stack.enter_async_context(process)
            found.addresses[name] = (folder / "address").read_text().strip()
            await until(lambda: holds(found, "a"))
        front = await asyncio.start_server(found.forward, "127.0.0.1", 0)
        stack.callback(front.close)
        url = f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        loop = SchedulingLoop(
            server.url,
            "user:system:kube-scheduler",
            extender=ExtenderSettings(url=url, http_timeout_s=30),
            backoff_s=0.05,
        )
        await loop.start()
        stack.push_async_callback(loop.stop)
        api = await stack.enter_async_context(ApiClient(server.url, "user:test"))
        session = await stack.enter_async_context(aiohttp.ClientSession(url))
        world = World(
            server=server,
            api=api,
            extender=session,
            process=processes["a"],
            address_file=tmp_path / "a" / "address",
        )
        yield world, found


async def holds(found: Replicas, name: str) -> bool:
    return await found.ready() == [name]


async def says(found: Replicas, name: str, text: str) -> bool:
    return await found.readiness(name) == text


async def holder(world: World) -> str | None:
    spec = (await world.api.get(LEASE))["spec"]
    return str(spec["holderIdentity"]) if spec.get("holderIdentity") else None


async def test_a_leader_that_dies_in_the_middle_of_a_job_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    binds = Binds(left=2)
    quick = ("--lease-s", "3", "--bind-s", "1")
    async with replicas(tmp_path, binds, *quick) as (world, found):
        for number in range(1, 5):
            await world.add_node(f"n{number}")
        await until(lambda: says(found, "b", "a leads"))
        for number in range(4):
            await add_member(world, f"p{number}", size=4)

        async def is_in_the_middle() -> bool:
            return binds.held >= 2 and len(await nodes_of(world)) == 2

        await until(is_in_the_middle)
        world.process.kill()
        binds.left = float("inf")

        async def is_whole() -> bool:
            return len(await nodes_of(world)) == 4

        await until(is_whole)
        pods = await world.api.items(PODS)
        assert sorted(
            (pod["spec"]["nodeName"], len(chips_of(pod))) for pod in pods
        ) == [("n1", 8), ("n2", 8), ("n3", 8), ("n4", 8)]
        assert await holder(world) == "b"


def chips_of(pod: dict[str, dict[str, dict[str, str]]]) -> set[str]:
    return set(pod["metadata"]["annotations"][RESOURCE].split(","))


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, Binds(), "--lease-s", "3600") as (world, found):
        world.process.send_signal(signal.SIGTERM)

        await until(lambda: holds(found, "b"))

        assert await world.process.wait() == 0
        assert await holder(world) == "b"
