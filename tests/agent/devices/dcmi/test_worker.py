"""When a worker is taken for one that hangs: in simulated time, without a process."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from agent.devices.dcmi import frames
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.worker import Worker

CALL = Call(function="dcmi_get_device_health", card=2, device=0)


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
async def test_one_that_rests_between_two_looks_does_not_hang(silent: Silent) -> None:
    worker = silent.worker()
    said = []
    for _ in range(4):
        silent.progress.beat()
        said += [worker.problem(0.5)]
        await asyncio.sleep(2.0)
        said += [worker.problem(0.5)]
    await worker.end()

    assert said == [""] * 8


@pytest.mark.looptime
async def test_one_that_is_in_a_call_for_longer_hangs(silent: Silent) -> None:
    worker = silent.worker()
    silent.progress.begin(CALL)
    said = [worker.problem(0.5)]
    await asyncio.sleep(0.4)
    said += [worker.problem(0.5)]
    await asyncio.sleep(0.2)
    said += [worker.problem(0.5)]
    await worker.end()

    assert said == ["", "", f"{CALL} has not come back for 0.5 s"]
    assert worker.last_call == CALL


@pytest.mark.looptime
async def test_one_that_does_not_come_back_from_its_rest_hangs(silent: Silent) -> None:
    worker = silent.worker()
    said = [worker.problem(0.5)]
    for _ in range(3):
        await asyncio.sleep(1.0)
        said += [worker.problem(0.5)]
    await worker.end()

    assert said == ["", "", "", "the driver worker has not come back for 3 s"]


@pytest.mark.looptime
async def test_that_it_has_ended_is_news_also_to_who_comes_late(silent: Silent) -> None:
    worker = silent.worker()
    silent.theirs.close()
    while not worker.problem(3600.0):
        await asyncio.sleep(0.01)
    ended_s = asyncio.get_running_loop().time()

    await worker.wait_for_news(60.0)

    assert asyncio.get_running_loop().time() - ended_s < 1.0
    await worker.end()


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
