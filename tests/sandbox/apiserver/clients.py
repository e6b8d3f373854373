from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from sandbox.apiserver import ApiServer
from tests.contract.apiserver.client import Api


@asynccontextmanager
async def api_of(server: ApiServer) -> AsyncIterator[Api]:
    """A client in the default namespace."""
    async with aiohttp.ClientSession(server.url) as session:
        yield Api(session, "default")
