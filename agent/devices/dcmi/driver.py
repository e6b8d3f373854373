"""The agent's end of the worker: started, listened to, given up, started again.

One that hangs in a call for too long is killed, one that has died is replaced, each
after a pause that grows. The call in which it was is then left out for a while, so
that one chip whose driver hangs costs the readings of that chip and not of all.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi import find_library, values
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.worker import Worker
from agent.devices.driver import DriverError
from agent.devices.reading import Reading
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: How often a worker that says nothing is looked at. Unit: seconds.
CHECK_EACH_S = 0.25
#: A worker that lived so long has started well: its successor need not wait.
LIVED_WELL_S = 60.0
#: A call that did not come back is left out for so long, then twice as long …
LEAVE_OUT_S = 60.0
#: … and never longer than this.
LEAVE_OUT_MOST_S = 3600.0


@dataclass(slots=True)
class _Blame:
    """A call that a worker did not survive."""

    times: int
    until_s: float  #: loop time


class DcmiDriver:
    """A `Driver` of real chips. Protects the worker that asks for us."""

    def __init__(
        self,
        library: Path,
        *,
        product: str,
        call_s: float,
        wall_ms: Callable[[], int],
        environment: Mapping[str, str] = os.environ,
        new_backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """Remember what to do; nothing is started yet.

        Args:
            library: The libdcmi.so to load.
            product: Key of the row of the table; "" to tell it from the chips.
            call_s: How long one call may take. Unit: seconds, above 0.
            wall_ms: Unix milliseconds now.
            environment: The worker's.
            new_backoff: Pauses between workers.
        """
        self._library = library
        self._call_s = call_s
        self._wall_ms = wall_ms
        self._environment = environment
        self._backoff = new_backoff()
        self._conversion = Conversion(product)
        self._worker: Worker | None = None
        self._next_start_s = float("-inf")
        self._problem = ""
        self._blames: dict[Call, _Blame] = {}
        #: what the present worker has said last: a reading, or why there is none
        self._said: Reading | str | None = None

    @property
    def worker_pid(self) -> int | None:
        """The process that asks for us now; None between two."""
        return self._worker.pid if self._worker else None

    async def read(self) -> Reading:
        """Return the next that the worker had to say, or else the last.

        Raises:
            DriverError: There is no worker that works, or it cannot read; and why.
        """
        while True:
            worker = await self._working()
            if worker.waiting:
                self._said = self._taken(worker.waiting.popleft())
            if self._said is None:
                await worker.news(CHECK_EACH_S)
            elif isinstance(self._said, str):
                raise DriverError(self._said)
            else:
                return self._said

    async def news(self, within_s: float) -> bool:
        """Wait until there may be something new to read, but no longer than so."""
        if self._worker is None:
            await asyncio.sleep(within_s)
            return True
        await self._worker.news(within_s)
        return bool(self._worker.waiting or self._worker.problem(self._call_s))

    async def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()

    async def _working(self) -> Worker:
        """Return the worker if it works; replace it if it does not, when it is time."""
        if self._worker is None:
            problem = find_library.distrust(self._library)
            if problem:
                raise DriverError(problem)
            now = clock.loop_s()
            if now < self._next_start_s:
                left_s = self._next_start_s - now
                raise DriverError(f"{self._problem}; next try in {left_s:.0f} s")
            self._worker = Worker.start(
                str(self._library), self._environment, self._left_out(now)
            )
        problem = self._worker.problem(self._call_s)
        if not problem:
            return self._worker
        worker, self._worker, self._said = self._worker, None, None
        self._give_up(worker, problem)
        await worker.end()
        raise DriverError(self._problem)

    def _give_up(self, worker: Worker, problem: str) -> None:
        """Draw the lesson from a worker's end."""
        now = clock.loop_s()
        if now - worker.started_s > LIVED_WELL_S:
            self._backoff.reset()
        self._problem = problem
        pause_s = self._backoff.next_s()
        self._next_start_s = now + pause_s
        if worker.last_call is not None and worker.last_call.card >= 0:
            blame = self._blames.setdefault(worker.last_call, _Blame(0, now))
            blame.times += 1
            doubled_s = LEAVE_OUT_S * 2 ** min(blame.times - 1, 10)
            blame.until_s = now + min(LEAVE_OUT_MOST_S, doubled_s)
        log.error(
            "driver worker ended",
            extra={"reason": problem, "retry_in_s": round(pause_s, 2)},
        )

    def _left_out(self, now: float) -> list[list[object]]:
        return [
            [call.function, call.card, call.device, blame.until_s - now]
            for call, blame in self._blames.items()
            if blame.until_s > now
        ]

    def _taken(self, message: dict[str, Any]) -> Reading | str:
        if "problem" in message:
            return f"{self._library}: {message['problem']}"
        try:
            found = values.of_message(message["survey"])
            return self._conversion.reading(found, self._wall_ms())
        except UnknownMachineError as error:
            return str(error)
