"""What a person asked for on a terminal, who may not read it to the end."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unread_is_well() -> Iterator[None]:
    """End well what writes to standard output, also if it is closed (`| head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # else the interpreter would complain about it once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
