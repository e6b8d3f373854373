"""What the extender sends to the API server when a chip breaks, byte for byte."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from scheduler_core.wire.deviceinfo import Fault
from tests.extender.test_app import REPORTS, World, beside_an_api_server, reported
from tests.extender.test_gangs_over_http import member
from tests.support import objects
from tests.support.objects import PODS
from tests.support.until import until
from tests.support.watched import served

FAULT = Fault(chip=3, code="80E01801", level="SeparateNPU")
#: Method and path of each request.
REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r$", re.MULTILINE)


class Wire:
    """A relay before an API server that writes down what clients send."""

    def __init__(self) -> None:
        #: all that was sent since the last `forget`
        self.sent = bytearray()

    @asynccontextmanager
    async def before(self, url: str) -> AsyncIterator[str]:
        """Relay between clients and an API server; yield the URL for the clients."""
        to = urlsplit(url)

        async def relay(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            up_reader, up_writer = await asyncio.open_connection(to.hostname, to.port)
            await asyncio.gather(
                self._pump(reader, up_writer, notes=True),
                self._pump(up_reader, writer, notes=False),
            )

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, notes: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if notes:
                    self.sent += data
                sink.write(data)
                await sink.drain()
        sink.close()

    def requests(self) -> list[str]:
        return [
            f"{method.decode()} {path.decode()}"
            for method, path in REQUEST.findall(bytes(self.sent))
        ]


@asynccontextmanager
async def wired(folder: Path, *arguments: str) -> AsyncIterator[tuple[World, Wire]]:
    """An extender that reaches its API server by a wire, on three nodes."""
    wire = Wire()
    async with beside_an_api_server(folder, *arguments, reach=wire.before) as world:
        for name in ("n1", "n2", "n3"):
            await world.add_node(name)
        yield world, wire


async def run(world: World, name: str, node: str) -> None:
    """A pod of a job of two that has its chips, confirmed as by its agent."""
    pod = member(name, size=2, count=8, job="train")
    pod["metadata"]["annotations"] |= served(range(8))
    pod["metadata"]["labels"] = {"fault-scheduling": "grace"}
    pod["spec"]["nodeName"] = node
    await world.api.create(PODS, pod)
    await world.api.patch_status(f"{PODS}/{name}", {"status": {"phase": "Running"}})


async def explained(world: World, name: str) -> str:
    return (await world.get(f"/v1/explain/default/{name}"))[1]


async def break_chip(world: World, wire: Wire) -> None:
    """Break a chip of pod `a`, of a job of two that runs, and wait until it is seen."""
    await run(world, "a", "n1")
    await run(world, "b", "n2")
    await until(lambda: explained(world, "a"), has('"confirmed": true'))
    await until(lambda: explained(world, "b"), has('"confirmed": true'))
    wire.sent.clear()
    data = reported(unhealthy=(3,), faults=(FAULT,))
    report = objects.report("n1", data)
    path = f"{REPORTS}/{report['metadata']['name']}"
    await world.api.patch(path, {"data": report["data"]})
    await until(lambda: explained(world, "a"), has("out of service"))


def has(text: str) -> Callable[[str], bool]:
    return lambda found: text in found


async def test_without_the_setting_a_broken_chip_causes_no_byte(tmp_path: Path) -> None:
    async with wired(tmp_path) as (world, wire):
        await break_chip(world, wire)
        await asyncio.sleep(2.5)  # two ticks and an event would be over

        assert bytes(wire.sent) == b""
        assert '"rescheduling"' not in await explained(world, "a")


async def test_with_report_an_event_is_all_that_it_causes(tmp_path: Path) -> None:
    async with wired(tmp_path, "--rescheduling", "report") as (world, wire):
        await break_chip(world, wire)
        await world.until_event("AscendWouldMove", "a")
        await asyncio.sleep(2.5)

        assert wire.requests() == ["POST /api/v1/namespaces/default/events"]
        ((_, _, text),) = await world.events()
        assert text.startswith("chip 3 of this pod is broken (SeparateNPU 80E01801).")
        assert "a on n3 (chips 0,1,2,3,4,5,6,7); 1 would return" in text
        assert '"leaving": ["a", "b"]' in await explained(world, "b")


async def test_with_evict_nothing_is_asked_while_nothing_is_broken(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path, "--rescheduling", "evict") as (world, wire):
        await run(world, "a", "n1")
        await until(lambda: explained(world, "a"), has('"confirmed": true'))
        await asyncio.sleep(1.5)  # the records are read
        wire.sent.clear()
        await asyncio.sleep(2.5)

        assert bytes(wire.sent) == b""


async def test_a_word_that_does_nothing_is_refused_at_the_start() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "--rescheduling", "move"),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()

    assert process.returncode != 0
    assert b"rescheduling" in said
    assert b"one of off, report, evict" in said
