import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from service.process import causes

PREAMBLE = """
import asyncio, logging, sys
from service import logs, process
from service.settings import SettingsError
logs.setup("info")
"""


@contextmanager
def started(body: str, ready: str = "ready\n") -> Iterator["subprocess.Popen[str]"]:
    """Run a program; it has printed `ready` when the context begins."""
    program = PREAMBLE + textwrap.dedent(body) + "\nsys.exit(process.run(main))\n"
    with subprocess.Popen(  # noqa: S603  # our own words
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert next_line(process) == ready
            yield process
        finally:
            process.kill()


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ended(body: str) -> tuple[int, str]:
    with started(body, ready="") as process:
        _, errors = process.communicate(timeout=20)
        return process.returncode, errors


WAITING = """
async def main():
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("put away", flush=True)
"""


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_and_is_logged_once(which: signal.Signals) -> None:
    with started(WAITING) as process:
        process.send_signal(which)
        output, errors = process.communicate(timeout=20)

        assert (process.returncode, output) == (0, "put away\n")
        (line,) = [json.loads(each) for each in errors.splitlines()]
        assert (line["msg"], line["signal"]) == ("stopping", which.name)


def test_sigterm_twice_is_sigterm_once() -> None:
    with started(
        """
        async def main():
            print("ready", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("putting away", flush=True)
                await asyncio.sleep(0.2)
                print("put away", flush=True)
        """
    ) as process:
        process.terminate()
        assert next_line(process) == "putting away\n"
        process.terminate()

        output, errors = process.communicate(timeout=20)

        assert (process.returncode, output) == (0, "put away\n")
        assert len(errors.splitlines()) == 1


def test_a_second_ctrl_c_is_final() -> None:
    with started(
        """
        async def main():
            print("ready", flush=True)
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    print("stubborn", flush=True)
        """
    ) as process:
        process.send_signal(signal.SIGINT)
        assert next_line(process) == "stubborn\n"
        process.send_signal(signal.SIGINT)

        process.communicate(timeout=20)

        assert process.returncode == -signal.SIGINT


def test_a_program_that_is_done_ends_well() -> None:
    assert ended("async def main(): pass") == (0, "")


def test_an_unknown_failure_is_one_traceback_and_exit_1() -> None:
    code, errors = ended(
        """
        async def main():
            raise LookupError("no such chip")
        """
    )

    (line,) = [json.loads(each) for each in errors.splitlines()]
    assert code == 1
    assert (line["level"], line["error"]) == ("critical", "LookupError('no such chip')")
    assert line["exc"].count("Traceback") == 1
    assert line["exc"].endswith("LookupError: no such chip")


def test_groups_are_unwrapped_for_the_reader() -> None:
    code, errors = ended(
        """
        async def fail(error):
            raise error

        async def inner():
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(LookupError("no such chip")))
                group.create_task(fail(OSError("no such file")))

        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
                group.create_task(asyncio.sleep(60))
        """
    )

    (line,) = [json.loads(each) for each in errors.splitlines()]
    assert code == 1
    assert line["error"] == "LookupError('no such chip')"
    assert line["also"] == ["OSError('no such file')"]
    assert line["exc"].count("Traceback") == 1
    assert "ExceptionGroup" not in line["exc"]


@pytest.mark.parametrize(
    "body",
    [
        """
        def main():
            raise SettingsError(["--a: expected x", "--b: expected y"])
        """,
        """
        async def refuse():
            raise SettingsError(["--a: expected x", "--b: expected y"])

        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(refuse())
        """,
    ],
)
def test_wrong_settings_are_lines_and_exit_2(body: str) -> None:
    assert ended(body) == (2, "--a: expected x\n--b: expected y\n")


def test_a_failure_while_stopping_is_a_failure() -> None:
    with started(
        """
        async def main():
            try:
                print("ready", flush=True)
                await asyncio.Event().wait()
            finally:
                raise LookupError("lost")
        """
    ) as process:
        process.terminate()
        _, errors = process.communicate(timeout=20)

        messages = [json.loads(each)["msg"] for each in errors.splitlines()]
        assert (process.returncode, messages) == (1, ["stopping", "failed"])


def test_causes_are_the_leaves() -> None:
    one, two, three = ValueError(1), ValueError(2), ValueError(3)
    group = ExceptionGroup("a", [one, ExceptionGroup("b", [two, three])])

    assert list(causes(group)) == [one, two, three]
    assert list(causes(one)) == [one]
