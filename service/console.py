"""Standard output of programs: closed pipes (`| head`), terminals without Unicode.

A module of its own: every program uses it.
"""

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: {character that we write: what a terminal without it shows}
_LOOK_ALIKES = {"✓": "ok", "✗": "x", "·": ".", "…": "..."}
_ERRORS = "ascend-look-alike"


def fit_stdout() -> None:
    """Write to standard output only what its encoding has, from now on.

    A terminal may be set to GBK or ASCII. Other characters are written by number, so
    that nothing is lost and nothing fails.
    """
    codecs.register_error(_ERRORS, _look_alike)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ERRORS)


def _look_alike(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if character in _LOOK_ALIKES:
        return _LOOK_ALIKES[character], error.start + 1
    return codecs.backslashreplace_errors(error)


@contextmanager
def ignore_closed_stdout() -> Iterator[None]:
    """Write to standard output in this context; a closed pipe is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter reports the closed pipe again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
