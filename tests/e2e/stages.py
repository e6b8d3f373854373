"""One line for each stage of the work, with its time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class CannotError(Exception):
    """Something that the cluster needs is not so; the text says what to do."""


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Print what is being done, and how long it took."""
    begun = time.monotonic()
    sys.stdout.write(f"  {text} ".ljust(66, "."))
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        say(f" {time.monotonic() - begun:6.1f} s  FAILED")
        raise
    say(f" {time.monotonic() - begun:6.1f} s")
