"""`ascend-sandbox demo` tells the story, `ascend-sandbox up` leaves you a cluster."""

import asyncio
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

# A shell has Ctrl-C ignored for a job in the background. From here on it works: what
# is imported next takes a second, and what comes later is a handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from sandbox import options  # after the signal
from sandbox.demo import story, visit  # after the signal
from sandbox.faults import control, parse  # after the signal
from sandbox.faults.kinds import FaultError  # after the signal
from sandbox.inspect.terminal import Style, Terminal  # after the signal
from sandbox.options import Options  # after the signal
from sandbox.scenario import parse as scenario_file
from sandbox.scenario import run  # after the signal
from sandbox.world import (  # after the signal
    NotReadyError,
    PortTakenError,
    ProgramDiedError,
    rescheduling,
    running,
)
from service.console import fit_stdout  # after the signal

#: What a shell expects of a program that Ctrl-C has ended: 128 + SIGINT.
_INTERRUPTED = 130
_FAILED = 1
_MISUSED = 2

Play = Callable[[Terminal], Awaitable[int]]


def main() -> int:
    """Run one of the two; the exit code says how it went."""
    fit_stdout()
    words = sys.argv[1:]
    if words[:1] in (["fault"], ["faults"]):
        return parse.main(words, os.environ, sys.stdout, sys.stderr)
    try:
        play = _asked(words)
    except options.OptionsError as error:
        sys.stderr.write(f"ascend-sandbox: {error}\n")
        return _MISUSED
    if sys.platform != "linux":
        sys.stderr.write(
            "The sandbox runs on Linux only (unix sockets, /proc); "
            f"found {sys.platform}.\n"
        )
        return _MISUSED
    return asyncio.run(_live(play, Terminal(sys.stdout, os.environ)))


def _asked(words: list[str]) -> Play:
    """Return what is to be played.

    Raises:
        OptionsError: The words make no sense, or the scenario's file.
    """
    if words[:1] != ["run"] or len(words) != 2 or words[1].startswith("-"):
        wanted = options.parse(words)
        return functools.partial(_PLAYS[wanted.play], wanted)
    path = words[1]
    try:
        scenario = scenario_file.read(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        text = f"{path}: expected a readable file, found: {error}"
        raise options.OptionsError(text) from error
    except scenario_file.ScenarioError as error:
        flaws = "\n".join(f"  {path}:{line}: {text}" for line, text in error.flaws)
        text = f"the scenario cannot be played:\n{flaws}"
        raise options.OptionsError(text) from error
    return functools.partial(_run, scenario)


async def _live(play: Play, terminal: Terminal) -> NoReturn:
    """Play, then end the process at once: nothing is left to be cleaned up.

    A gRPC server that was stopped while it began can crash the process (SIGSEGV)
    when the event loop is closed.
    """
    code = await _until_signalled(play, terminal)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _until_signalled(play: Play, terminal: Terminal) -> int:
    """Play; a signal ends it in good order, and further ones change nothing."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(_play(play, terminal))
    is_stopping = False

    def stop() -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            task.cancel()

    # Ctrl-C also where a shell has it ignored, as for a job in the background; but
    # whoever says nohup means it.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        ignored = signal.getsignal(number) is signal.SIG_IGN
        if not (ignored and number is signal.SIGHUP):
            loop.add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    terminal.say()
    terminal.say("Stopped; nothing is left running.", Style.DIM)
    return _INTERRUPTED


async def _play(play: Play, terminal: Terminal) -> int:
    try:
        return await play(terminal)
    except (FaultError, NotReadyError, PortTakenError, ProgramDiedError) as error:
        terminal.bad(str(error))
        return _FAILED


async def _demo(_: Options, terminal: Terminal) -> int:
    begin = asyncio.get_running_loop().time()
    async with running(story.NODES, rescheduling("evict")) as world:
        failed = await story.tell(world, terminal)
    if failed is not None:
        return _FAILED
    took = asyncio.get_running_loop().time() - begin
    terminal.say()
    terminal.good(f"every step checked out, in {took:.0f} s; nothing is left running")
    return 0


async def _run(scenario: scenario_file.Scenario, terminal: Terminal) -> int:
    async with running(scenario.nodes, rescheduling(scenario.rescheduling)) as world:
        if not await run.play(scenario, world, terminal):
            return _FAILED
    terminal.good("passed")
    return 0


async def _up(wanted: Options, terminal: Terminal) -> int:
    async with (
        running(wanted.machines, port=wanted.port) as world,
        control.obeying(world, wanted.faults),
    ):
        await visit.invite(world, terminal)
        await asyncio.Event().wait()
    return 0


_PLAYS: dict[str, Callable[[Options, Terminal], Awaitable[int]]] = {
    "demo": _demo,
    "up": _up,
}

if __name__ == "__main__":
    sys.exit(main())
