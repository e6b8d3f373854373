"""The programs of a world that runs: killed, frozen, started again.

An end that is asked for here interrupts nobody; any other still does.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping

from sandbox.world.programs import Program, Programs

EXTENDER = "extender"
_LOOK_S = 0.02


def agent_of(node: str) -> str:
    """Return what the agent of a node is called."""
    return f"agent-{node}"


class Crew:
    """Who runs, by name. Protects that nobody runs twice."""

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

    def expect_end(self, name: str) -> None:
        """Let a program end, whenever it does, until it is started again."""
        self._programs.expect_end(name)

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
