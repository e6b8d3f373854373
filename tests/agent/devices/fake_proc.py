"""A folder like /proc, in which each file may hang."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def add(proc: Path, pid: int, **files: str) -> None:
    """A process with these files."""
    (proc / str(pid)).mkdir()
    for name, text in files.items():
        (proc / str(pid) / name).write_text(text)


@contextmanager
def hanging(proc: Path, pid: int, *files: str) -> Iterator[None]:
    """A process with these files, each of which hangs whoever opens it."""
    add(proc, pid)
    paths = [proc / str(pid) / name for name in files]
    for path in paths:
        os.mkfifo(path)
    try:
        yield
    finally:
        for path in filter(Path.is_fifo, paths):
            let_go(path)


def let_go(path: Path) -> None:
    """End the hanging: whoever has opened the file finds it empty."""
    os.close(os.open(path, os.O_RDWR))
    path.unlink()


def threads(name: str) -> set[threading.Thread]:
    """All threads of this name that have not ended."""
    return {thread for thread in threading.enumerate() if thread.name == name}
