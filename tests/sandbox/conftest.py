from collections.abc import AsyncIterator

import pytest

from sandbox.world import World, running
from tests.support.servers import short_folder


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world of one node."""
    with short_folder() as below:
        async with running(["node-1"], below=below) as world:
            yield world
