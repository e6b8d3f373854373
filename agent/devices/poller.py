"""Ask a driver in turn, and never wait for it too long.

A driver call can hang, and nothing can end it. So there is at most one call in
flight: one that misses its deadline is left running, what it last said is marked
as stale, and it is not called again until it has come back.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.devices.driver import Driver, DriverError
from agent.devices.reading import Reading
from service import clock

#: The pause between two looks when nothing is to be expected. Unit: seconds.
CALM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of the hardware now."""

    #: The last good reading; None until there was one.
    reading: Reading | None = None
    #: When that was read. Unit: seconds of the event loop's clock.
    read_at: float | None = None
    #: Why `reading` is not from just now, or which part of it; "" when all is.
    problem: str = ""
    #: Whether that is about single chips, and the rest is from just now.
    partly: bool = False

    #: How long the driver took; None while it has not answered. Unit: seconds.
    took_s: float | None = field(default=None, compare=False)

    @property
    def is_stale(self) -> bool:
        """Whether the hardware may have changed since `reading`."""
        return bool(self.problem) and not self.partly


class Source:
    """The only caller of a driver. Protects the call in flight."""

    def __init__(self, driver: Driver, *, poll_s: float, deadline_s: float) -> None:
        """Nothing is asked until `run` or `look`.

        Args:
            driver: Whom to ask.
            poll_s: Longest pause between two looks while something is to be expected;
                otherwise that is `CALM_S`, if it is longer, and at the beat of all
                who look each second. Unit: seconds, above 0.
            deadline_s: How long one look may take before what is known is called
                stale. Unit: seconds, above 0.
        """
        self._driver = driver
        self._poll_s = poll_s
        self._deadline_s = deadline_s
        self._call: asyncio.Task[Reading] | None = None
        self._called_at = 0.0
        self._known = Observation()

    async def run(self, deliver: Callable[[Observation], bool]) -> None:
        """Look for ever and deliver each observation, changed or not.

        Unchanged ones matter too: a chip recovers by time passing.

        Args:
            deliver: Takes each; says whether one is wanted soon though nothing changes.
        """
        try:
            seen = await self.look()
            while True:
                pause_s = self._poll_s if deliver(seen) else self._until_calm_look_s()
                seen = await self._next(pause_s)
        finally:
            if self._call is not None:
                self._call.cancel()

    def _until_calm_look_s(self) -> float:
        return self._poll_s if self._poll_s > CALM_S else clock.until_beat_s(CALM_S)

    async def _next(self, within_s: float) -> Observation:
        """Look again when the driver has news; else all is as it was, only later."""
        has_news = await self._driver.news(within_s)
        if has_news or self._known.problem:
            return await self.look()
        return replace(self._known, read_at=clock.loop_s(), took_s=None)

    async def look(self) -> Observation:
        """Look once; returns after the deadline at the latest."""
        if self._call is None:
            self._called_at = clock.loop_s()
        call = self._call or asyncio.create_task(self._driver.read())
        self._call = call
        done, _ = await asyncio.wait({call}, timeout=self._deadline_s)
        if done:
            self._call = None
            took_s = clock.loop_s() - self._called_at
            self._known = replace(self._after(call), took_s=took_s)
        else:
            self._known = self._stale(f"no answer within {self._deadline_s:g} s")
        return self._known

    def _after(self, call: asyncio.Task[Reading]) -> Observation:
        try:
            reading = call.result()
        except DriverError as error:
            return self._stale(str(error))
        now = clock.loop_s()
        unread = (each for line in reading.lines for each in line.unread)
        why = "; ".join(f"chip {each.chip}: {each.why}" for each in unread)
        return Observation(reading=reading, read_at=now, problem=why, partly=bool(why))

    def _stale(self, problem: str) -> Observation:
        return Observation(
            reading=self._known.reading, read_at=self._known.read_at, problem=problem
        )
