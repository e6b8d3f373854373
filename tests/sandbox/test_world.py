import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import aiohttp
import psutil
import pytest

from sandbox.apiclient import ApiClient
from sandbox.world import (
    CHIP_COUNT,
    RESOURCE,
    Commands,
    NotReadyError,
    ProgramDiedError,
    directories,
    running,
)
from sandbox.world.programs import Programs
from sandbox.world.readiness import Readiness

#: Longest path of a unix socket, without its terminating zero (unix(7)).
SOCKET_PATH_BYTES = 107
IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('ready'); time.sleep(99)"
)


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for worlds; in the end it is empty, and no process is left."""
    before = children()
    directory = Path(tempfile.mkdtemp(prefix="w-"))  # tmp_path is too long
    yield directory
    assert children() == before
    directory.rmdir()


async def test_a_world_comes_up_and_leaves_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # D11: programs start anywhere, also beside files that have our packages' names.
    for name in ("agent", "extender", "kube", "sandbox", "scheduler_core", "service"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    monkeypatch.chdir(tmp_path)

    async with running(["n1"], below=place) as world:
        node = await world.api.get("/api/v1/nodes/n1")
        assert node["status"]["allocatable"][RESOURCE] == str(CHIP_COUNT)
        assert world.premises.root.parent == place
        assert len(children()) == 2
        urls = (world.api_url, world.extender_url, world.kubelets["n1"].url)

    async with aiohttp.ClientSession() as session:
        for url in urls:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(url)


async def test_a_failure_inside_leaves_nothing(place: Path) -> None:
    with pytest.raises(LookupError, match="of the test"):
        async with running(["n1"], below=place):
            raise LookupError("of the test")


async def test_cancellation_leaves_nothing(place: Path) -> None:
    up = asyncio.Event()
    task = asyncio.create_task(stay(place, up))
    await up.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def stay(place: Path, up: asyncio.Event) -> None:
    async with running(["n1"], below=place):
        up.set()
        await asyncio.Event().wait()


async def test_cancellation_while_it_comes_up_leaves_nothing(place: Path) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stay(place, asyncio.Event()), 0.3)


async def test_a_program_that_dies_is_told_with_its_last_words(place: Path) -> None:
    words = "import sys; print('no chips here'); sys.exit(3)"
    commands = Commands(agent=lambda _: (sys.executable, "-c", words))

    with pytest.raises(ProgramDiedError) as caught:
        async with running(["n1"], commands, below=place):
            pass

    assert str(caught.value) == (
        "agent-n1 ended by itself, exit code 3; its last words:\nno chips here"
    )


async def test_a_program_that_dies_later_interrupts_whoever_waits(place: Path) -> None:
    up = asyncio.Event()
    task = asyncio.create_task(stay(place, up))
    await up.wait()
    os.kill(max(children()), signal.SIGKILL)

    with pytest.raises(ProgramDiedError) as caught:
        await task

    assert caught.value.exit_code == -signal.SIGKILL


async def test_what_came_of_a_death_is_told_as_the_death(place: Path) -> None:
    programs = Programs()

    async def work() -> None:
        async with programs.watched():
            ends = (sys.executable, "-c", "")
            programs.start("p", ends, log=place / "log", env={}).process.wait()
            raise ConnectionError("refused")

    with pytest.raises(ProgramDiedError) as caught:
        await work()

    assert isinstance(caught.value.__cause__, ConnectionError)
    (place / "log").unlink()


async def test_a_cancellation_from_outside_is_passed_on(place: Path) -> None:
    del place
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), Programs().watched():
            await asyncio.Event().wait()


async def test_a_program_that_does_not_want_to_end_is_made_to(place: Path) -> None:
    programs = Programs(grace_s=0.1)
    log = place / "log"
    command = (sys.executable, "-u", "-c", IGNORES_SIGTERM)
    program = programs.start("stubborn", command, log=log, env={})
    while "ready" not in program.last_words():
        await asyncio.sleep(0.01)

    await programs.stop()
    assert not program.has_ended
    programs.kill()

    assert program.process.returncode == -signal.SIGKILL
    log.unlink()


async def test_what_is_missing_is_told_with_what_programs_said(place: Path) -> None:
    programs = Programs()
    command = (sys.executable, "-c", "print('I am busy')")
    log = place / "log"
    programs.start("agent-n1", command, log=log, env={}).process.wait()
    api = ApiClient("http://127.0.0.1:1", "")

    async with aiohttp.ClientSession() as http:
        ready = Readiness(api, http, programs, within_s=0.05)
        with pytest.raises(NotReadyError) as caught:
            await ready.program(place / "address")

    assert str(caught.value) == (
        f"{place}/address has not been written after 0.05 s\n-- agent-n1:\nI am busy"
    )
    log.unlink()


def test_socket_paths_fit_even_below_a_long_directory(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 80)
    deep.mkdir()

    with directories.opened(deep) as place:
        root = place.root / "a-node-with-a-rather-long-name"
        sockets = (
            root / "device-plugins" / "Ascend910.sock",
            root / "pod-resources" / "kubelet.sock",
        )
        assert max(len(bytes(path)) for path in sockets) <= SOCKET_PATH_BYTES


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_end_it_and_leave_nothing(
    place: Path, number: signal.Signals
) -> None:
    async with commanded(["up"], place) as process:
        told = await told_until(process, "Ctrl-C ends it")
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.send_signal(number)
        out, _ = await process.communicate()

    assert "export KUBECONFIG=" in told
    assert out.decode().strip() == "Stopped; nothing is left running."
    assert process.returncode == 130
    assert len(started) == 4
    assert not any(each.is_running() for each in started)


@pytest.mark.long
@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6, 2.0, 4.0])
async def test_the_story_can_be_stopped_at_any_moment(
    place: Path, after_s: float
) -> None:
    async with commanded(["demo"], place) as process:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), after_s)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()

    # Before our first line of code, Python's own handler speaks; before it has even
    # found its modules, with an error of its own.
    told = err.decode()
    by_python = process.returncode == -signal.SIGINT or (
        process.returncode == 1 and "/sandbox/" not in told
    )
    assert by_python or (process.returncode, told) == (130, "")


@pytest.mark.long
async def test_the_whole_story_checks_out(place: Path) -> None:
    async with commanded(["demo"], place) as process:
        out, err = await process.communicate()

    told = out.decode()
    assert process.returncode == 0, told + err.decode()
    assert err == b""
    assert "\x1b" not in told
    assert [line for line in told.splitlines() if line[:1].isdigit()] == [
        "1  The nodes register",
        "2  Pods of 1, 2, 4 and 8 chips are placed",
        "3  A race: eight pods of one chip and two of two, at the same moment",
        "4  A chip breaks under a job of two pods: it moves, and goes on",
        "5  An agent is killed in the middle of an Allocate",
        "6  A pod that fits nowhere is told why",
        "7  The sum",
    ]


def test_whoever_asks_wrongly_is_told_what_there_is() -> None:
    command = [sys.executable, "-m", "sandbox", "dance"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # ours

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ascend-sandbox [-h] COMMAND")


@contextlib.contextmanager
def ignoring_nothing() -> Iterator[None]:
    """Start programs as a terminal does.

    A shell lets what it starts in the background ignore Ctrl-C, and whoever ignores a
    signal passes that on: so the tests' own manner of being started would decide.
    """
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextlib.asynccontextmanager
async def commanded(
    words: Sequence[str], directory: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    with ignoring_nothing():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(directory)},
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def told_until(process: asyncio.subprocess.Process, text: str) -> str:
    assert process.stdout is not None
    told = ""
    while text not in told:
        line = await process.stdout.readline()
        assert line, told
        told += line.decode()
    return told
