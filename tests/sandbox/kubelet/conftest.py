"""A node of the sandbox, with an API server of its own."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from tests.contract.kubelet.site import Site, until


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def kubelet(server: ApiServer) -> AsyncIterator[Kubelet]:
    # Not tmp_path: the sockets' paths must stay below 108 bytes.
    with tempfile.TemporaryDirectory() as root:
        kubelet = Kubelet(
            node_name="node-1",
            api_url=server.url,
            token="user:system:node:node-1",  # noqa: S106  # names a user, no secret
            root=Path(root),
        )
        await kubelet.start()
        yield kubelet
        await kubelet.stop()


@pytest.fixture
async def site(server: ApiServer, kubelet: Kubelet) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiClient(server.url, "user:admin"))

        async def registered() -> bool:
            return bool(await api.items("/api/v1/nodes"))

        await until(registered)
        yield Site(
            device_dir=kubelet.device_plugin_dir,
            pod_resources=kubelet.pod_resources_socket,
            node=kubelet.node_name,
            api=api,
            stack=stack,
        )
