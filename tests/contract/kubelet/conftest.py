"""Where the contract tests find their kubelet.

CONTRACT_KUBELET_DIR, CONTRACT_POD_RESOURCES, CONTRACT_API_URL (and
CONTRACT_API_TOKEN) and CONTRACT_NODE name a real one; without them the sandbox's
is started for each test. CONTRACT_KUBELET_URL adds the kubelet's own endpoint.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandbox.apiclient import ApiClient
from sandbox.kubelet import Kubelet
from tests.contract.kubelet.plugin import Plugin
from tests.contract.kubelet.site import Site
from tests.support.servers import embedded_kubelet
from tests.support.until import until


@pytest.fixture
async def kubelet(api_url: str) -> AsyncIterator[Kubelet | None]:
    """The embedded kubelet; None if a real one is under test."""
    if "CONTRACT_KUBELET_DIR" in os.environ:
        yield None
        return
    async with embedded_kubelet(api_url, "contract") as kubelet:
        yield kubelet


@pytest.fixture
async def site(
    kubelet: Kubelet | None, api_url: str, api_token: str
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        client = ApiClient(api_url, api_token or "user:admin")
        api = await stack.enter_async_context(client)
        if kubelet is None:
            yield Site(
                device_dir=Path(os.environ["CONTRACT_KUBELET_DIR"]),
                pod_resources=Path(os.environ["CONTRACT_POD_RESOURCES"]),
                node=os.environ["CONTRACT_NODE"],
                api=api,
                stack=stack,
            )
            return

        async def registered() -> bool:
            nodes = await api.items("/api/v1/nodes")
            return [node["metadata"]["name"] for node in nodes] == [kubelet.node_name]

        await until(registered)
        yield Site(
            device_dir=kubelet.device_plugin_dir,
            pod_resources=kubelet.pod_resources_socket,
            node=kubelet.node_name,
            api=api,
            stack=stack,
        )


@pytest.fixture
async def plugin(site: Site) -> Plugin:
    """Eight devices that the kubelet knows."""
    return await site.plugin()


@pytest.fixture
def kubelet_url(kubelet: Kubelet | None) -> str:
    if kubelet is not None:
        return kubelet.url
    if "CONTRACT_KUBELET_URL" not in os.environ:
        pytest.skip("CONTRACT_KUBELET_URL is not set")
    return os.environ["CONTRACT_KUBELET_URL"]
