"""The sandbox as a program: what ends it, and what does not."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

#: Long enough for a machine that does other things too.
SOON_S = 30.0


def does(process: subprocess.Popen[bytes], what: str, number: signal.Signals) -> bool:
    """Tell whether a process ignores (SigIgn) or handles (SigCgt) a signal."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    raise AssertionError(process.pid)


def is_listening(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal."""
    return does(process, "SigCgt", number)


def begin(ignored: signal.Signals) -> subprocess.Popen[bytes]:
    """Start the sandbox with one signal ignored, as `nohup` and shells do it."""
    command = f"trap '' {ignored.name.removeprefix('SIG')}; exec \"$@\""
    return subprocess.Popen(  # noqa: S603  # our own program
        ["/bin/sh", "-c", command, "sh", sys.executable, "-m", "sandbox", "up"],
        stdout=subprocess.PIPE,
    )


def start(ignored: signal.Signals) -> subprocess.Popen[bytes]:
    """Start it and wait until it listens to what it wants to listen to."""
    process = begin(ignored)
    wait(lambda: is_listening(process, signal.SIGTERM))
    return process


def wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_ends_it_also_in_the_background(ignored: signal.Signals) -> None:
    process = start(ignored)

    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=SOON_S)

    assert process.returncode == 130
    assert "Stopped; nothing is left running." in said.decode()


def test_ctrl_c_ends_it_also_while_it_only_begins() -> None:
    process = begin(signal.SIGINT)
    # the shell has ended and our first line has run
    wait(lambda: "python" in Path(f"/proc/{process.pid}/comm").read_text())
    wait(lambda: not does(process, "SigIgn", signal.SIGINT))

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SOON_S)

    assert process.returncode in {-signal.SIGINT, 130}


def test_a_hangup_that_is_ignored_stays_so() -> None:
    process = start(signal.SIGHUP)

    listens = is_listening(process, signal.SIGHUP)
    process.terminate()
    process.communicate(timeout=SOON_S)

    assert not listens
