"""A loop that runs beside its owner until it is told to stop.

A module of its own: both schedulers of the sandbox run their loops by it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Protects the task that runs the loop: there is one at most."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run nothing yet.

        Args:
            run: the loop; it ends only by failing.
        """
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to run it."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop at once, wherever it is.

        Raises:
            Exception: the loop had failed before.
        """
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            await task
