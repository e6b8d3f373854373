"""`python -m extender`, installed as `ascend-extender`."""

import os
import sys

from extender import app
from extender.settings import Settings
from service import logs, process, settings


async def _run() -> None:
    told = settings.load(Settings, sys.argv[1:], os.environ)
    logs.setup(told.log_level)
    await app.main(told)


def main() -> int:
    """Run until told to stop; the exit code says how it went."""
    return process.run(_run)


if __name__ == "__main__":
    sys.exit(main())
