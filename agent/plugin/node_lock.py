"""One agent for one kubelet: the second one waits instead of fighting.

Two agents in one device plugin directory would remove each other's socket for
ever. An advisory lock on the directory itself decides: it needs no file (the
kubelet clears the directory when it starts) and ends with its process.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

TRY_EACH_S = 0.5


@asynccontextmanager
async def exclusive(
    directory: Path, on_wait: Callable[[str], None]
) -> AsyncIterator[None]:
    """Have the directory to ourselves while the context lasts.

    Args:
        directory: The kubelet's device plugin directory; must exist.
        on_wait: Told once, in a sentence, if another process has it.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    told = False
    try:
        while not _locked(handle):
            if not told:
                on_wait(f"another agent serves the kubelet at {directory}; waiting")
                told = True
            await asyncio.sleep(TRY_EACH_S)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
