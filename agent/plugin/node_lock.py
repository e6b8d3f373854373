"""Lock the kubelet's device plugin directory, so that one agent serves one kubelet.

Without the lock, two agents could serve one kubelet and both give out the same chips.
The lock is an advisory lock on the directory itself. It needs no file in the directory:
the kubelet deletes the files there when it starts. The lock ends with the process that
has it.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

#: Pause between two attempts to get the lock. Unit: seconds.
TRY_EACH_S = 0.5


@asynccontextmanager
async def lock_kubelet_dir(
    directory: Path, on_wait: Callable[[str], None]
) -> AsyncIterator[None]:
    """Wait for the lock on the kubelet's directory; hold it while the context lasts.

    Args:
        directory: The kubelet's device plugin directory, which must exist.
        on_wait: Called once with a sentence if another process has the lock.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    is_waiting = False
    try:
        while not _try_lock(handle):
            if not is_waiting:
                on_wait(f"another agent serves the kubelet at {directory}; waiting")
                is_waiting = True
            await asyncio.sleep(TRY_EACH_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
