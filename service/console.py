"""Output of command-line programs when the reader closes the pipe (`| head`).

A module of its own: `--help` of every program and the sandbox's list of faults use it.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ignore_closed_stdout() -> Iterator[None]:
    """Write to standard output in this context; a closed pipe is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter reports the closed pipe again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
