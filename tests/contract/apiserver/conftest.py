from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.contract.apiserver.client import Api, Object


@pytest.fixture
async def api(api_url: str, api_token: str) -> AsyncIterator[Api]:
    """A client with a namespace of its own, which goes when the test ends."""
    headers = {"Authorization": f"Bearer {api_token}"} if api_token else {}
    # A real server under test has a certificate that it has signed itself.
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(
        api_url, headers=headers, connector=connector
    ) as session:
        api = Api(session)
        code, made = await api.post(
            "/api/v1/namespaces", {"metadata": {"generateName": "contract-"}}
        )
        assert code == 201, made
        api.namespace = made["metadata"]["name"]
        yield api
        await api.delete(f"/api/v1/namespaces/{api.namespace}")


@pytest.fixture
async def node(api: Api) -> AsyncIterator[str]:
    """A node's name; the node exists and nothing runs on it."""
    body: Object = {
        "metadata": {"generateName": "contract-"},
        "status": {"capacity": {"cpu": "4", "huawei.com/Ascend910": 8}},
    }
    code, made = await api.post("/api/v1/nodes", body)
    assert code == 201, made
    name = made["metadata"]["name"]
    yield name
    await api.delete(f"/api/v1/nodes/{name}")
