"""Work beside a test."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


async def ended(task: "asyncio.Task[Any]") -> None:
    """Cancel a task, and wait until it is over; raise what it raised before."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@asynccontextmanager
async def in_background(
    work: Coroutine[Any, Any, object],
) -> AsyncIterator["asyncio.Task[object]"]:
    """Work that goes on until the block ends; if it fails, the block ends with it."""
    task = asyncio.create_task(work)
    waiting = asyncio.current_task()

    def give_up(task: "asyncio.Task[object]") -> None:
        if waiting is not None and not task.cancelled() and task.exception():
            waiting.cancel()

    task.add_done_callback(give_up)
    try:
        yield task
    finally:
        waiting = None
        await ended(task)
