"""Settings that change while the agent runs: what follows at once, and what does not.

Only the file of `--config` can change. How much is logged follows it; everything else
is part of what the agent was built from, so the log says that a restart is needed,
once for each change. A file that is wrong changes nothing.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from agent.observe import log as keys
from agent.settings import Settings
from service import logs
from service.settings import SettingsError

log = logging.getLogger(__name__)

#: A kubelet takes a minute to bring a changed ConfigMap. Unit: seconds.
PAUSE_S = 10.0


def has_file(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Tell whether settings come from a file, so that they can change.

    Args:
        argv: The command line without the program's name.
        environ: Of the process.
    """
    names = (word.lstrip("-").partition("=")[0] for word in argv)
    return "config" in names or f"{Settings.PREFIX}_CONFIG" in environ


class Resettling:
    """Protects what holds now, and what was said of changes."""

    def __init__(
        self,
        told: Settings,
        load: Callable[[], Settings],
        *,
        set_level: Callable[[str], None] = logs.setup,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Begin with what the agent was started with.

        Args:
            told: That.
            load: Says what it would be started with now; may raise SettingsError.
            set_level: Has more or less logged from now on.
            pause_s: Between two looks. Unit: seconds.
        """
        self._pause_s = pause_s
        self._told = told
        self._load = load
        self._set_level = set_level
        self._level = told.log_level
        self._said: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._pause_s)
            self.look(await asyncio.to_thread(self._found))

    def _found(self) -> Settings | SettingsError:
        try:
            return self._load()
        except SettingsError as error:
            return error

    def look(self, found: Settings | SettingsError) -> None:
        """Take in what the settings are now, or why they are not usable."""
        if isinstance(found, SettingsError):
            if self._is_news(found.problems):
                reason = {keys.REASON: str(found)}
                log.warning("changed settings are wrong", extra=reason)
            return
        if found.log_level != self._level:
            self._level = found.log_level
            self._set_level(found.log_level)
            log.info("setting changed", extra={keys.REASON: "log-level"})
        changed = tuple(
            field.name.replace("_", "-")
            for field in dataclasses.fields(Settings)
            if field.name != "log_level"
            and getattr(found, field.name) != getattr(self._told, field.name)
        )
        if self._is_news(changed):
            reason = {keys.REASON: ", ".join(changed)}
            log.warning("restart needed for changed settings", extra=reason)

    def _is_news(self, what: tuple[str, ...]) -> bool:
        said, self._said = self._said, what
        return bool(what) and what != said
