"""Apply changes of the settings file while the agent runs.

The settings file is the file of `--config`. A new log level needs no restart. All other
settings need one, because parts of the agent are constructed with them. For those the
agent only logs that a restart is needed. A file with an error changes nothing.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from agent.settings import Settings
from service import logs
from service.settings import SettingsError

log = logging.getLogger(__name__)

#: Pause between two reads of the file; a kubelet takes a minute to update a mounted
#: ConfigMap. Unit: seconds.
PAUSE_S = 10.0


def has_file(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether the agent was started with a settings file, which may change later.

    Args:
        argv: The command line without the program's name.
        environ: Environment of the process.
    """
    names = (word.lstrip("-").partition("=")[0] for word in argv)
    return "config" in names or f"{Settings.PREFIX}_CONFIG" in environ


class SettingsReload:
    """Task that re-reads the settings file and applies a new log level.

    Changes of other settings are only logged, because they need a restart.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings],
        *,
        set_level: Callable[[str], None] = logs.setup,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Begin with the settings that the agent was started with.

        Args:
            settings: Settings at the start of the agent.
            load: Reads the file and returns the settings; may raise SettingsError.
            pause_s: Pause between two reads of the file. Unit: seconds.
        """
        self._pause_s = pause_s
        self._settings = settings
        self._load = load
        self._set_level = set_level
        self._level = settings.log_level
        #: what was logged last: changed settings, or problems of the file
        self._logged: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Read the settings file every `pause_s` and apply it, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                self.apply(await asyncio.to_thread(self._load))
            except SettingsError as error:
                self.apply(error)

    def apply(self, settings: Settings | SettingsError) -> None:
        """Apply a changed log level; log which other settings need a restart.

        Those are the settings that differ from the ones at the start of the agent. If
        `settings` is an error, only log why the file cannot be used. The same text is
        not logged twice in a row.

        Args:
            settings: Settings read from the file, or the error of reading it.
        """
        if isinstance(settings, SettingsError):
            if self._is_new(settings.problems):
                reason = {"reason": str(settings)}
                log.warning("changed settings are wrong", extra=reason)
            return
        if settings.log_level != self._level:
            self._level = settings.log_level
            self._set_level(settings.log_level)
            log.info("setting changed", extra={"reason": "log-level"})
        changed = tuple(
            field.name.replace("_", "-")
            for field in dataclasses.fields(Settings)
            if field.name != "log_level"
            and getattr(settings, field.name) != getattr(self._settings, field.name)
        )
        if self._is_new(changed):
            reason = {"reason": ", ".join(changed)}
            log.warning("restart needed for changed settings", extra=reason)

    def _is_new(self, texts: tuple[str, ...]) -> bool:
        """Whether to log `texts`: not empty, and not those of the previous call."""
        logged, self._logged = self._logged, texts
        return bool(texts) and texts != logged
