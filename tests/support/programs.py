"""Programs in a process of their own. A module of its own: all packages have some."""

import subprocess
import sys
from typing import Any


def run_python(
    *words: str, check: bool = True, stdout: int = subprocess.PIPE, **more: Any
) -> "subprocess.CompletedProcess[str]":
    """Run our interpreter with these words until it ends; `more` as for a process."""
    return subprocess.run(  # noqa: S603  # our own programs
        [sys.executable, *words],
        check=check,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )
