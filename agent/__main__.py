"""`python -m agent`, installed as `ascend-agent`."""

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from functools import partial

from agent import app, mindcluster_flags
from agent.observe import log as keys
from agent.settings import Settings, verify
from agent.settings_reload import Resettling, has_file
from agent.status import socket
from service import logs, process, settings

log = logging.getLogger(__name__)


async def _run() -> None:
    said = mindcluster_flags.translated(
        sys.argv[1:], os.environ, prefix=Settings.PREFIX
    )
    told = settings.load(Settings, said.argv, os.environ)
    verify(told)
    logs.setup(told.log_level)
    for text in said.idle:
        log.warning("flag without meaning", extra={keys.REASON: text})
    async with AsyncExitStack() as stack:
        if has_file(said.argv, os.environ):
            load = partial(settings.load, Settings, said.argv, os.environ)
            following = asyncio.create_task(Resettling(told, load).run())
            stack.callback(following.cancel)
        await app.main(told)


def main() -> int:
    """Run until told to stop, or tell the status; the exit code says how it went."""
    if sys.argv[1:2] == ["status"]:
        return socket.main(sys.argv[2:], os.environ)
    return process.run(_run)


if __name__ == "__main__":
    sys.exit(main())
