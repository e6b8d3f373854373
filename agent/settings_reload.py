"""Apply changes of the settings file while the agent runs.

Only the file of `--config` can change. A new log level applies at once. For all other
settings the log says once for each change that a restart is needed: the parts of the
agent are constructed with them. A file with an error changes nothing.
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

#: Pause between two reads of the file; a kubelet takes a minute to update a mounted
#: ConfigMap. Unit: seconds.
PAUSE_S = 10.0


def has_file(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Tell whether settings come from a file, and so may change.

    Args:
        argv: The command line without the program's name.
        environ: Of the process.
    """
    names = (word.lstrip("-").partition("=")[0] for word in argv)
    return "config" in names or f"{Settings.PREFIX}_CONFIG" in environ


class SettingsReload:
    """Follower of the settings file: applies the log level, logs other changes."""

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
            settings: At start.
            load: Returns the settings of now; may raise SettingsError.
            set_level: Sets the log level of the process.
            pause_s: Between two reads. Unit: seconds.
        """
        self._pause_s = pause_s
        self._settings = settings
        self._load = load
        self._set_level = set_level
        self._level = settings.log_level
        #: what was logged last: changed settings, or problems of the file
        self._logged: tuple[str, ...] = ()

    async def run(self) -> NoReturn:
        """Read the file again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s)
            self.apply(await asyncio.to_thread(self._read))

    def _read(self) -> Settings | SettingsError:
        try:
            return self._load()
        except SettingsError as error:
            return error

    def apply(self, settings: Settings | SettingsError) -> None:
        """Set the log level, and log other changes, or why the file is not usable."""
        if isinstance(settings, SettingsError):
            if self._is_new(settings.problems):
                reason = {keys.REASON: str(settings)}
                log.warning("changed settings are wrong", extra=reason)
            return
        if settings.log_level != self._level:
            self._level = settings.log_level
            self._set_level(settings.log_level)
            log.info("setting changed", extra={keys.REASON: "log-level"})
        changed = tuple(
            field.name.replace("_", "-")
            for field in dataclasses.fields(Settings)
            if field.name != "log_level"
            and getattr(settings, field.name) != getattr(self._settings, field.name)
        )
        if self._is_new(changed):
            reason = {keys.REASON: ", ".join(changed)}
            log.warning("restart needed for changed settings", extra=reason)

    def _is_new(self, texts: tuple[str, ...]) -> bool:
        """Tell whether texts are not empty and differ from those logged last."""
        logged, self._logged = self._logged, texts
        return bool(texts) and texts != logged
