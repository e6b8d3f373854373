"""Waiting for what only the server itself knows."""

import asyncio

from sandbox.apiserver import ApiServer


async def watches(server: ApiServer, count: int) -> None:
    """Wait until the server has so many open watches."""
    async with asyncio.timeout(60):
        # Nothing tells it: the other side of a socket has to have been noticed.
        while server.watch_count != count:
            await asyncio.sleep(0.005)
