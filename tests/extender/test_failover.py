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
from tests.extender.replicas import Replicas
from tests.extender.test_app import World, started
from tests.extender.test_gangs_over_http import (
    add_member,
    nodes_of,
    scheduling,
    until_bound,
)
from tests.support.objects import PODS
from tests.support.until import equal, until
from tests.support.watched import RESOURCE, claim

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
            await until(found.ready, equal(["a"]))
        front = await asyncio.start_server(found.forward, "127.0.0.1", 0)
        stack.callback(front.close)
        url = f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        await stack.enter_async_context(scheduling(server.url, url))
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
        await until(lambda: found.readiness("b"), equal("a leads"))
        for number in range(4):
            await add_member(world, f"p{number}", size=4)
        await until(
            lambda: nodes_of(world),
            lambda nodes: binds.held >= 2 and len(nodes) == 2,
        )
        world.process.kill()
        binds.left = float("inf")
        await until_bound(world, 4)
        pods = await world.api.items(PODS)
        all_chips = claim(range(8))[RESOURCE]
        assert {
            pod["spec"]["nodeName"]: pod["metadata"]["annotations"][RESOURCE]
            for pod in pods
        } == dict.fromkeys(("n1", "n2", "n3", "n4"), all_chips)
        assert await holder(world) == "b"


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, Binds(), "--lease-s", "3600") as (world, found):
        world.process.send_signal(signal.SIGTERM)

        await until(found.ready, equal(["b"]))

        assert await world.process.wait() == 0
        assert await holder(world) == "b"
