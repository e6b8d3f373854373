from collections.abc import AsyncIterator

import pytest

from tests.kube.server import Script, scripted


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted() as made:
        yield made
