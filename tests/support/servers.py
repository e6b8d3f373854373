"""API servers, endpoints and folders that last as long as a test."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from sandbox.kubelet.profiles import NEWEST, Profile
from service.endpoints import Endpoints


@asynccontextmanager
async def api_server(**settings: Any) -> AsyncIterator[ApiServer]:
    """The sandbox's API server, on a real socket."""
    server = ApiServer(**settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def embedded_kubelet(
    api_url: str, node: str, profile: Profile = NEWEST
) -> AsyncIterator[Kubelet]:
    """The sandbox's kubelet, in a folder of its own."""
    with short_folder() as root:
        kubelet = Kubelet(
            node_name=node,
            api_url=api_url,
            token=f"user:system:node:{node}",
            root=root,
            profile=profile,
        )
        await kubelet.start()
        try:
            yield kubelet
        finally:
            await kubelet.stop()


@asynccontextmanager
async def asking(
    routes: Iterable[web.RouteDef],
    waits: str | None = None,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[aiohttp.ClientSession]:
    """Endpoints of a program with these routes, and a session that asks them."""
    registry = registry or CollectorRegistry()
    endpoints = Endpoints(registry, lambda: waits, routes=routes)
    async with (
        endpoints.serving("127.0.0.1:0") as address,
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        yield session


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for sockets: unlike those of tmp_path, theirs stay below 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-") as root:
        yield Path(root)


@asynccontextmanager
async def listening(
    app: web.Application, shutdown_s: float = 1.0
) -> AsyncIterator[str]:
    """Serve an application on a port of its own; its URL."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_s)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
