"""What a worker says and that it ends: without the program of a worker."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.devices.dcmi import frames
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.driver import DcmiDriver
from agent.devices.dcmi.progress import Progress
from agent.devices.dcmi.worker import Worker
from agent.devices.driver import DriverError


@dataclass(frozen=True, kw_only=True)
class Silent:
    """A worker that says nothing; what it notes is up to the test."""

    process: "subprocess.Popen[bytes]"
    ours: socket.socket
    theirs: socket.socket
    progress: Progress

    def worker(self) -> Worker:
        return Worker(self.process, self.progress, self.ours)


@pytest.fixture
def silent() -> Iterator[Silent]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003  # the standard library's signature
    with subprocess.Popen(["sleep", "3600"]) as process, theirs:  # noqa: S607  # any
        try:
            progress = Progress(Progress.create())
            yield Silent(process=process, ours=ours, theirs=theirs, progress=progress)
        finally:
            process.kill()


@pytest.mark.looptime
async def test_that_it_has_ended_is_news_also_to_who_comes_late(silent: Silent) -> None:
    worker = silent.worker()
    silent.theirs.close()
    while not worker.check().end_reason:
        await asyncio.sleep(0.01)
    ended_s = asyncio.get_running_loop().time()

    await worker.wait_for_news(60.0)

    assert asyncio.get_running_loop().time() - ended_s < 1.0
    await worker.end()


def test_what_is_sent_during_a_look_is_as_new_as_the_newest_of_it() -> None:
    progress = Progress(Progress.create())
    seen = [progress.look_s]
    for began_s in (1.0, 5.0, 3.0):  # the turns of chips end in another order
        progress.begin_look(began_s)
        seen.append(progress.look_s)
    progress.beat()

    assert (seen, progress.look_s) == ([None, 1.0, 5.0, 5.0], None)


@pytest.mark.looptime
async def test_no_message_is_lost_while_the_agent_is_busy(silent: Silent) -> None:
    worker = silent.worker()
    for number in range(200):
        silent.theirs.sendall(frames.encode({"number": number}))
    await asyncio.sleep(10.0)

    read: list[int] = []
    while len(read) < 200:
        await worker.wait_for_news(60.0)
        read.append(worker.take()["number"])
    await worker.end()

    assert read == list(range(200))


@pytest.mark.looptime
async def test_what_a_worker_sent_before_it_ended_is_read(
    silent: Silent, tmp_path: Path
) -> None:
    library = tmp_path / "libdcmi.so"
    library.touch(mode=0o644)
    driver = DcmiDriver(
        library,
        Conversion(),
        call_s=5.0,
        wall_ms=lambda: 0,
        start=lambda *_order: silent.worker(),
    )
    for text in ("first", "second"):
        silent.theirs.sendall(frames.encode({"problem": text}))
    silent.theirs.close()

    said = []
    for _ in range(3):
        with pytest.raises(DriverError) as raised:
            await driver.read()
        await asyncio.sleep(2.0)
        said.append(str(raised.value))

    assert said == [
        f"{library}: first",
        f"{library}: second",
        "the driver worker has closed its socket",
    ]


async def test_a_worker_whose_end_is_cancelled_is_killed_and_counted(
    silent: Silent, tmp_path: Path
) -> None:
    """Finding D30: it was forgotten before it was killed."""
    library = tmp_path / "libdcmi.so"
    library.touch(mode=0o644)
    started = []

    def start(*_order: object) -> Worker:
        started.append(silent.worker())
        return started[-1]

    driver = DcmiDriver(
        library, Conversion(), call_s=5.0, wall_ms=lambda: 0, start=start
    )
    silent.theirs.sendall(frames.encode({"problem": "any"}))
    with pytest.raises(DriverError):
        await driver.read()
    closing = asyncio.create_task(driver.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})

    assert closing.cancelled()
    assert await asyncio.to_thread(silent.process.wait, 10.0) == -signal.SIGKILL


def test_a_worker_whose_agent_has_ended_before_it_began_ends_by_itself() -> None:
    """Else it would ask the driver all the same, and a call that hangs never ends."""
    ours, theirs = socket.socketpair()
    page = Progress.create()
    with ours, theirs:
        numbers = (theirs.fileno(), page, 2**30)
        with (
            subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-m", "agent.devices.dcmi", *map(str, numbers)],
                pass_fds=numbers[:2],
            ) as worker
        ):
            try:
                assert worker.wait(60) == 0
            finally:
                worker.kill()
                os.close(page)
