from collections.abc import AsyncIterator

import pytest

from sandbox.apiserver import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    server = ApiServer(bookmark_period_s=0.05)
    await server.start()
    yield server
    await server.stop()
