"""`python -m agent`, installed as `ascend-agent`."""

import os
import sys

from agent import app
from agent.settings import Settings, verify
from service import logs, program, settings


async def _run() -> None:
    told = settings.load(Settings, sys.argv[1:], os.environ)
    verify(told)
    logs.setup(told.log_level)
    await app.main(told)


def main() -> int:
    """Run until told to stop; the exit code says how it went."""
    return program.run(_run)


if __name__ == "__main__":
    sys.exit(main())
