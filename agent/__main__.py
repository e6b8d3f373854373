"""Start `ascend-agent`, also as `python -m agent`."""

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack
from functools import partial

from agent import app, mindcluster_flags
from agent.settings import Settings, verify
from agent.settings_reload import SettingsReload, has_file
from agent.status import socket
from service import console, logs, process, settings

log = logging.getLogger(__name__)


async def _run() -> None:
    translation = mindcluster_flags.translate(
        sys.argv[1:], os.environ, prefix=Settings.PREFIX
    )
    loaded = settings.load(Settings, translation.argv, os.environ)
    verify(loaded)
    logs.setup(loaded.log_level)
    for text in translation.idle:
        log.warning("flag without meaning", extra={"reason": text})
    async with AsyncExitStack() as stack:
        if has_file(translation.argv, os.environ):
            load = partial(settings.load, Settings, translation.argv, os.environ)
            reload = asyncio.create_task(SettingsReload(loaded, load).run())
            stack.callback(reload.cancel)
        await app.main(loaded)


def main() -> int:
    """Run the agent, or print its status, as the command line says.

    The agent runs until a signal or an error.

    Returns:
        Exit code of the process.
    """
    console.fit_stdout()
    if sys.argv[1:2] == ["status"]:
        return socket.main(sys.argv[2:], os.environ)
    return process.run(_run)


if __name__ == "__main__":
    sys.exit(main())
