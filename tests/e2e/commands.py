"""Other people's programs, run to their end."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.stages import CannotError

_TOLD_LINES = 15


def run(
    *command: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run a program and return what it printed.

    Raises:
        CannotError: It failed; the text has its last words.
    """
    words = [str(word) for word in command]
    done = subprocess.run(  # noqa: S603  # the commands are ours
        words,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **(env or {})},
        cwd=cwd,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        told = "\n".join((done.stdout + done.stderr).splitlines()[-_TOLD_LINES:])
        raise CannotError(f"{' '.join(words)}: exit code {done.returncode}\n{told}")
    return done.stdout


def until(
    reached: Callable[[], object], what: str, *, within_s: float, every_s: float = 0.1
) -> None:
    """Wait for what another process does.

    Raises:
        CannotError: It did not come in time.
    """
    end = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > end:
            raise CannotError(f"not within {within_s:g} s: {what}")
        time.sleep(every_s)
