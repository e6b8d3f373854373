"""The kubelet's pod-resources accept and do not answer: finding D27."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from agent.status.socket import NAME
from sandbox.apiclient import Object
from scheduler_core.wire import annotations
from tests.agent.site import Site, running_site
from tests.agent.test_rivals import told
from tests.support.objects import PODS
from tests.support.tasks import in_background
from tests.support.until import until

# fifteen seconds of silence are waited for
pytestmark = pytest.mark.long


class Relay:
    """A socket before the kubelet's pod-resources that can keep all to itself."""

    def __init__(self, kubelet: Path) -> None:
        self.is_silent = False
        self._kubelet = kubelet
        self._open: set[asyncio.StreamWriter] = set()

    def fall_silent(self) -> None:
        self.is_silent = True
        self.hang_up()

    def answer(self) -> None:
        self.is_silent = False
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._open.add(writer)
        try:
            if self.is_silent:
                await writer.wait_closed()
                return
            back, forth = await asyncio.open_unix_connection(self._kubelet)
            async with in_background(_copy(back, writer)):
                await _copy(reader, forth)
            forth.close()
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while read := await source.read(1 << 16):
            target.write(read)
            await target.drain()
        target.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Site, Relay]]:
    """A node whose agent asks pod-resources through a relay."""
    paths = ("{root}/relay.sock", "--address-file", "{root}/address")
    async with running_site("--pod-resources-socket", *paths, starts=False) as site:
        relay = Relay(site.kubelet.pod_resources_socket)
        path = site.root / "relay.sock"
        server = await asyncio.start_unix_server(relay.serve, path)
        site.start_agent()
        await site.until_allocatable()
        try:
            yield site, relay
        finally:
            await site.stop_agent()
            relay.hang_up()
            server.close()


async def status(site: Site) -> dict[str, object]:
    reader, writer = await asyncio.open_unix_connection(site.root / NAME)
    found: dict[str, object] = json.loads(await reader.read())
    writer.close()
    return found


async def test_d27_pod_resources_that_do_not_answer_are_told_and_made_up_for() -> None:
    async with relayed() as (site, relay):

        async def real(name: str) -> object:
            pod: Object = await site.api.get(f"{PODS}/{name}")
            return pod["metadata"]["annotations"].get(annotations.ASCEND_REAL)

        await site.serve("before")
        relay.fall_silent()
        assert await site.bind("during", 2)
        await site.until_phase("during", "Running")
        await site.until(lambda: site.events("NpuPodsUnknown"))

        assert "pod-resources do not say" in await told(site)
        assert "pod_resources_unanswered 1.0" in await told(site, "metrics")
        assert "DEADLINE_EXCEEDED" in str((await status(site))["podResourcesProblem"])
        assert await real("during") is None

        relay.answer()
        await site.until(lambda: real("during"))
        await site.until(lambda: site.events("NpuPodsKnown"))
        await until(lambda: told(site), lambda text: text == "ok")
        assert "pod_resources_unanswered 0.0" in await told(site, "metrics")
        assert (await status(site))["podResourcesProblem"] is None
