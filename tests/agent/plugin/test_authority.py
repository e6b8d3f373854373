"""Under which authority the agent calls the kubelet: Go servers refuse a path."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.pod_resources import PodResourcesClient
from agent.pods.reconciler import ResourcesError
from tests.agent.node import RESOURCE

#: HTTP/2: an empty SETTINGS frame, without which no client begins.
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_METHOD = b"/v1.PodResourcesLister/Get"


class Kubelet:
    """Reads what comes until a call was made, and hangs up."""

    def __init__(self) -> None:
        self.read = b""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(_SETTINGS)
        while _METHOD not in self.read and (some := await reader.read(4096)):
            self.read += some
        writer.close()


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet()
    server = await asyncio.start_unix_server(kubelet.serve, tmp_path / "r.sock")
    yield kubelet
    server.close()


async def test_the_kubelet_is_called_by_the_name_of_localhost(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    resources = PodResourcesClient(
        tmp_path / "r.sock", resource=RESOURCE, activity=AllocateActivity(lambda: 0.0)
    )

    with contextlib.suppress(ResourcesError):
        await resources.read("default", "train")
    await resources.close()

    assert _METHOD in kubelet.read
    assert b"localhost" in kubelet.read
    assert b"r.sock" not in kubelet.read
