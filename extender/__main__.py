"""Entry point of `python -m extender`, installed as `ascend-extender`.

A module of its own: Python demands the name `__main__`.
"""

import os
import sys

from extender import app
from extender.settings import Settings
from service import console, logs, process, settings


async def _run() -> None:
    program_settings = settings.load(Settings, sys.argv[1:], os.environ)
    logs.setup(program_settings.log_level)
    await app.main(program_settings)


def main() -> int:
    """Run the extender until a signal or an error; return the exit code."""
    console.fit_stdout()
    return process.run(_run)


if __name__ == "__main__":
    sys.exit(main())
