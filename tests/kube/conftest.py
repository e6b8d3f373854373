from collections.abc import AsyncIterator

import pytest

from kube.client import Client
from tests.kube.server import Script, client_of, scripted


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    async with scripted() as made:
        yield made


@pytest.fixture
async def client(script: Script) -> AsyncIterator[Client]:
    async with client_of(script) as made:
        yield made
