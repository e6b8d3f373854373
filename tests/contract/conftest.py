"""Where the contract tests find their API server.

CONTRACT_API_URL (and CONTRACT_API_TOKEN for a bearer token) name a real one; without
them the sandbox's is started for each test.
"""

import os
from collections.abc import AsyncIterator

import pytest

from tests.support.servers import api_server


@pytest.fixture
async def api_url() -> AsyncIterator[str]:
    if url := os.environ.get("CONTRACT_API_URL"):
        yield url.rstrip("/")
        return
    async with api_server() as server:
        yield server.url


@pytest.fixture
def api_token() -> str:
    return os.environ.get("CONTRACT_API_TOKEN", "")
