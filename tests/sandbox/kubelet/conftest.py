"""A node of the sandbox, with an API server of its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from sandbox.apiclient import ApiClient, Object
from sandbox.apiserver import ApiServer
from sandbox.kubelet import Kubelet
from tests.contract.kubelet.site import Site
from tests.support.objects import NODES
from tests.support.servers import api_server, embedded_kubelet
from tests.support.until import until


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


@pytest.fixture
async def kubelet(server: ApiServer) -> AsyncIterator[Kubelet]:
    async with embedded_kubelet(server.url, "node-1") as kubelet:
        yield kubelet


@pytest.fixture
async def site(server: ApiServer, kubelet: Kubelet) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiClient(server.url, "user:admin"))
        await until(lambda: api.items(NODES))
        yield Site(
            device_dir=kubelet.device_plugin_dir,
            pod_resources=kubelet.pod_resources_socket,
            node=kubelet.node_name,
            api=api,
            stack=stack,
        )


def mounted(kubelet: Kubelet) -> dict[str, tuple[str, ...]]:
    """{pod/container: the ids of one that runs}."""
    return {
        f"{record.pod}/{record.container}": record.ids
        for record in kubelet.containers()
        if record.running
    }


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
