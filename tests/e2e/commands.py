"""Other people's programs, run to their end."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client
import urllib3.exceptions

from tests.e2e import stalls
from tests.e2e.stages import CannotError, say

_TOLD_LINES = 15
#: What asking may meet while somebody is away or has just come back.
OUTAGES = (urllib3.exceptions.HTTPError, OSError)
_FIRST_OF_SERVER, _TOO_MANY = 500, 429
#: Between the tries of a download.
_PAUSES_S = (5, 30)


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


def fetch(*command: str | Path, **rest: Any) -> str:
    """Run a program that downloads: again after a pause, because networks fail.

    Raises:
        CannotError: It failed each time.
    """
    for pause_s in _PAUSES_S:
        try:
            return run(*command, **rest)
        except CannotError as error:
            say(f"\n{error}\nagain in {pause_s} s")
            time.sleep(pause_s)
    return run(*command, **rest)


def until(
    reached: Callable[[], object],
    what: str | Callable[[], str],
    *,
    within_s: float,
    every_s: float = 0.1,
    since: Callable[[], float] | None = None,
) -> None:
    """Wait for what another process does; outages on the way are part of it.

    While the machine gave us no time it gave the others none: that is added to the
    bound.

    Args:
        reached: Whether it is so.
        what: What is waited for; a function of what is known when it did not come.
        within_s: How long.
        every_s: Pause between two looks.
        since: Monotonic time from which `within_s` counts; by default, from now.

    Raises:
        CannotError: It did not come in time.
    """
    begun, stood_still_s = time.monotonic(), stalls.stood_still_s()
    while True:
        failure: Exception | None = None
        try:
            if reached():
                return
        except OUTAGES as error:
            failure = error
        except kubernetes.client.ApiException as error:
            if not is_outage(error):
                raise
            failure = error
        allowed_s = within_s + stalls.stood_still_s() - stood_still_s
        if time.monotonic() > (since() if since else begun) + allowed_s:
            text = what if isinstance(what, str) else what()
            last = f"; at last: {failure!r}" if failure else ""
            raise CannotError(f"not within {within_s:g} s: {text}{last}") from failure
        time.sleep(every_s)


def is_outage(error: kubernetes.client.ApiException) -> bool:
    """Whether an answer of the API server only says that it cannot just now."""
    status = int(error.status or _FIRST_OF_SERVER)
    return status >= _FIRST_OF_SERVER or status == _TOO_MANY
