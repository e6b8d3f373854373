"""Poll a driver (reader of the chips), with a deadline and at most one read at a time.

A read of the driver can hang. The poller cancels it only when `Poller.run` ends. If a
read misses the deadline, the latest reading is marked as stale. The driver is not read
again before the late read has returned.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent.devices.driver import Driver, DriverError
from agent.devices.reading import Reading
from service import clock

#: Pause between two polls when no change is expected. Unit: seconds.
CALM_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Latest good reading of the chips, and the reason if values in it are old."""

    #: The last good reading, with its date; None before the first.
    reading: Reading | None = None
    #: Why `reading` or a part of it is old; "" when all of it is new.
    problem: str = ""
    #: Whether all chips in `reading` have old values because of `problem`.
    is_stale: bool = False
    #: Duration of the driver's call; None while it has not answered. Unit: seconds.
    took_s: float | None = field(default=None, compare=False)


class Poller:
    """The only reader of one driver, with a deadline for each read."""

    def __init__(self, driver: Driver, *, poll_s: float, deadline_s: float) -> None:
        """Store the driver without calling it.

        Args:
            driver: The driver to poll.
            poll_s: Longest pause before the next observation, if the `deliver` of `run`
                asks for it within `poll_s`. Otherwise the longest pause is `poll_s` or
                1 s, whichever is longer. Unit: seconds, above 0.
            deadline_s: Longest wait for one call of the driver, before the latest
                reading is marked as stale. Unit: seconds, above 0.
        """
        self._driver = driver
        self._poll_s = poll_s
        self._deadline_s = deadline_s
        self._call: asyncio.Task[Reading] | None = None
        self._called_at = 0.0
        self._last_observation = Observation()

    async def run(self, deliver: Callable[[Observation], bool]) -> None:
        """Poll the driver for ever and pass each observation to `deliver`.

        An observation is the latest reading of the chips with its date. Unchanged
        readings are passed too, because a chip recovers only after some time without
        faults.

        Args:
            deliver: Takes an observation. Returns whether it needs the next one within
                the constructor's `poll_s`, even if the chips do not change.
        """
        try:
            observation = await self.poll()
            while True:
                is_calm = not deliver(observation) and self._poll_s <= CALM_S
                pause_s = clock.next_beat_delay_s(CALM_S) if is_calm else self._poll_s
                observation = await self._next_observation(pause_s)
        finally:
            if self._call is not None:
                self._call.cancel()

    def look_now(self) -> None:
        """Ask the driver for a look at every chip that begins now."""
        self._driver.look_now()

    async def _next_observation(self, within_s: float) -> Observation:
        """Wait up to `within_s` for a change of the chips, and return an observation.

        The driver is read if the chips may have changed, or if the latest observation
        has a problem. Otherwise the latest reading gets a new date.
        """
        has_news = await self._driver.wait_for_news(within_s)
        reading = self._last_observation.reading
        if has_news or self._last_observation.problem or reading is None:
            return await self.poll()
        self._last_observation = Observation(reading=self._date(reading))
        return self._last_observation

    async def poll(self) -> Observation:
        """Read the chips and return an observation, after `deadline_s` at the latest.

        If an earlier call of the driver still runs, wait for that call instead. If the
        call fails or is late, the observation has the previous reading and the problem.
        """
        if self._call is None:
            self._called_at = clock.loop_s()
        call = self._call or asyncio.create_task(self._driver.read())
        self._call = call
        done, _ = await asyncio.wait({call}, timeout=self._deadline_s)
        if done:
            self._call = None
            took_s = clock.loop_s() - self._called_at
            self._last_observation = replace(self._result_of(call), took_s=took_s)
        else:
            problem = f"no answer within {self._deadline_s:g} s"
            self._last_observation = self._mark_stale(problem)
        return self._last_observation

    def _result_of(self, call: asyncio.Task[Reading]) -> Observation:
        try:
            reading = call.result()
        except DriverError as error:
            return self._mark_stale(str(error))
        unread_chips = (chip for line in reading.lines for chip in line.unread)
        failed = (chip for chip in unread_chips if not chip.is_slow)
        problems = [f"chip {chip.chip}: {chip.reason}" for chip in failed]
        problem = "; ".join(filter(None, [reading.missing, *problems]))
        if problem and reading.is_old:
            return self._mark_stale(problem)
        return Observation(reading=self._date(reading), problem=problem)

    def _mark_stale(self, problem: str) -> Observation:
        reading = self._last_observation.reading
        return Observation(reading=reading, problem=problem, is_stale=True)

    def _date(self, reading: Reading) -> Reading:
        read_s = self._driver.known_s
        age_ns = round((clock.loop_s() - read_s) * 1e9)
        read_ms = (clock.wall_ns() - age_ns) // 1_000_000
        return replace(reading, read_s=read_s, read_ms=read_ms)
