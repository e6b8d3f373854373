"""Programs of the control plane that run in the sandbox's process until stopped.

It is a module of its own because the scheduler and the Job controller, which do not
know each other, both are one.
"""

import asyncio
from abc import ABC, abstractmethod


class ControlLoop(ABC):
    """One that runs as a task, and whose failure is raised when it is stopped."""

    #: the task; None before the start and after the end
    _main: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to run."""
        self._main = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop at once; what is under way is abandoned.

        Raises:
            Exception: it had failed before.
        """
        main, self._main = self._main, None
        if main is None:
            return
        main.cancel()
        await asyncio.wait({main})
        if not main.cancelled():
            await main

    @abstractmethod
    async def _run(self) -> None:
        """Run until cancelled."""
