from collections.abc import AsyncIterator

import aiohttp
import pytest

from sandbox.apiserver import ApiServer
from tests.contract.apiserver.client import Api
from tests.support.servers import api_server


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server(bookmark_period_s=0.05) as server:
        yield server


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[Api]:
    """A client in the default namespace."""
    headers = {"Authorization": "Bearer user:alice"}
    async with aiohttp.ClientSession(server.url, headers=headers) as session:
        yield Api(session, "default")
