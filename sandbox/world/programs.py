"""Child processes that never outlive their world.

Each leads a process group of its own, so that Ctrl-C in the terminal reaches
only us and we decide the order of ending. Plain `subprocess`, not asyncio's: the
last resort must work when the loop does not turn any more.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

EXTENDER = "extender"
_LOOK_S = 0.05
#: An agent lets a running Allocate end; here no Allocate takes long.
_GRACE_S = 4.0
_TOLD_LINES = 12


class ProgramDiedError(Exception):
    """A program ended that nobody had told to; the text has its last words."""

    def __init__(self, program: "Program") -> None:
        self.name = program.name
        self.exit_code = program.process.returncode
        ended = f"{program.name} ended by itself, exit code {self.exit_code}"
        super().__init__(f"{ended}; its last words:\n{program.last_words()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One child process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def last_words(self) -> str:
        """Return the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_TOLD_LINES:]) or "(it said nothing)"

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started."""
        # Not to one that has ended: its number may be somebody else's by now.
        if not self.has_ended:
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Kill the process, if it has not ended, and wait until it is gone."""
        self.tell(signal.SIGKILL)
        self.process.wait()


class Programs:
    """All child processes of one world.

    Protects: after `kill` none of them exists.
    """

    def __init__(self, *, grace_s: float = _GRACE_S) -> None:
        """Start with none.

        Args:
            grace_s: How long `stop` waits for those that were asked to end.
        """
        self._grace_s = grace_s
        self._programs: list[Program] = []
        #: names of those whose end is no accident
        self._expected: set[str] = set()

    def start(
        self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str]
    ) -> Program:
        """Start a program; what it says goes to a file.

        Args:
            name: What people call it.
            command: The program and its arguments.
            log: The file.
            env: Its whole environment.
        """
        with log.open("ab") as out:
            process = subprocess.Popen(  # noqa: S603  # our own programs
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        program = Program(name=name, process=process, log=log)
        self._programs = [
            p for p in self._programs if p.name != name or not p.has_ended
        ]
        self._programs.append(program)
        self._expected.discard(name)
        return program

    def expect_end(self, name: str) -> None:
        """Take the end of a program for none of its own, until it is started again."""
        self._expected.add(name)

    def named(self, name: str) -> Program:
        """Return the program of a name, the one that was started last."""
        return next(p for p in reversed(self._programs) if p.name == name)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Interrupt whatever happens inside as soon as a program ends by itself.

        Raises:
            ProgramDiedError: one has; also in place of an error inside, since
                that is most likely what came of it.
        """
        owner = asyncio.current_task()
        if owner is None:
            raise RuntimeError("programs can be watched from within a task only")
        watch = asyncio.create_task(self._first_dead())

        def interrupt(_: asyncio.Task[Program]) -> None:
            owner.cancel()

        watch.add_done_callback(interrupt)
        try:
            yield
        except asyncio.CancelledError:
            # As `asyncio.timeout` does: somebody else's cancellation goes on.
            if watch.done() and not owner.uncancel():
                raise ProgramDiedError(watch.result()) from None
            raise
        except Exception as error:
            dead = self._dead()
            if dead is not None:
                raise ProgramDiedError(dead) from error
            raise
        finally:
            watch.remove_done_callback(interrupt)
            watch.cancel()

    async def _first_dead(self) -> Program:
        while (dead := self._dead()) is None:  # noqa: ASYNC110  # it sets no event
            await asyncio.sleep(_LOOK_S)
        return dead

    def _dead(self) -> Program | None:
        dead = (p for p in self._programs if p.has_ended)
        return next((p for p in dead if p.name not in self._expected), None)

    def last_words(self) -> str:
        """Return the ends of all logs, for a failure that nobody has explained."""
        return "\n".join(f"-- {p.name}:\n{p.last_words()}" for p in self._programs)

    async def stop(self) -> None:
        """Ask all to end, and wait for a while; `kill` ends the rest."""
        await self._ask_to_end(self._programs)

    async def end(self, program: Program) -> None:
        """Ask one of them to end, and kill it when it does not.

        Args:
            program: Started here; nobody watches for it any more.
        """
        self._programs.remove(program)
        await self._ask_to_end([program])
        program.end()

    async def _ask_to_end(self, programs: Sequence[Program]) -> None:
        for program in programs:
            program.tell(signal.SIGTERM)
            program.tell(signal.SIGCONT)  # a frozen one would not hear of it
        for _ in range(round(self._grace_s / _LOOK_S)):
            if all(program.has_ended for program in programs):
                break
            await asyncio.sleep(_LOOK_S)

    def kill(self) -> None:
        """End whatever is left, at once."""
        for program in self._programs:
            program.end()
        self._programs.clear()


def agent_of(node: str) -> str:
    """Return what the agent of a node is called."""
    return f"agent-{node}"


class Crew:
    """The programs of a world that runs, by name: killed, frozen, started again.

    An end that is asked for here interrupts nobody; any other still does. Protects that
    nobody runs twice.
    """

    def __init__(
        self, programs: Programs, starts: Mapping[str, Callable[[], None]]
    ) -> None:
        """Know all.

        Args:
            programs: Those that run.
            starts: {name: what starts it}.
        """
        self._programs = programs
        self._starts = starts

    @property
    def names(self) -> frozenset[str]:
        """Who there is."""
        return frozenset(self._starts)

    def program(self, name: str) -> Program:
        """Return the one of that name, as started last."""
        return self._programs.named(name)

    def kill(self, name: str) -> None:
        """End a program as the kernel does when memory runs out: at once."""
        self._programs.expect_end(name)
        self.program(name).tell(signal.SIGKILL)

    def freeze(self, name: str) -> None:
        """Stop a program where it stands, its sockets open."""
        self.program(name).tell(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen program go on."""
        self.program(name).tell(signal.SIGCONT)

    async def ended(self, name: str) -> None:
        """Wait until a program that was killed is gone."""
        while not self.program(name).has_ended:  # noqa: ASYNC110  # it sets no event
            await asyncio.sleep(_LOOK_S)

    async def restart(self, name: str) -> None:
        """Start a program that has ended, or is about to."""
        await self.ended(name)
        self._starts[name]()
