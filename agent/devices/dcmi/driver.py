"""Read real chips through a worker process, which is replaced when it hangs or dies.

When a worker is killed and another started, and which calls it leaves out, is decided
by `lifecycle`. So one hanging chip costs only the readings of that chip.

A killed worker within a system call that cannot be interrupted goes on until that call
ends. Until then later workers make no call about the chip of that call. Of such workers
there are two at most: then no other is started.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi import find_library
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.library import LIST_CARDS
from agent.devices.dcmi.lifecycle import (
    LOAD_S,
    Lifecycle,
    Replace,
    Showed,
    Sign,
    Started,
    step,
)
from agent.devices.dcmi.memory import Memory
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.rows import IncompleteError
from agent.devices.dcmi.values import Survey
from agent.devices.dcmi.worker import Worker
from agent.devices.driver import DriverError
from agent.devices.reading import Reading
from scheduler_core.node import chips as chip_sets
from service import clock

log = logging.getLogger(__name__)

#: Pause between two checks of a silent worker. Unit: seconds.
CHECK_EACH_S = 0.25
#: Killed workers that have not ended, at most: each takes 10 to 25 MiB.
MOST_UNENDED = 2


#: Like `Worker.start`.
StartWorker = Callable[
    [str, Mapping[str, str], Sequence[Sequence[object]], Sequence[Sequence[int]]],
    Worker,
]


class DcmiDriver:
    """A `Driver` of real chips, with the worker process that calls libdcmi for it."""

    def __init__(  # noqa: PLR0913  # its surroundings, each passed in
        self,
        library: Path,
        conversion: Conversion,
        *,
        call_s: float,
        wall_ms: Callable[[], int],
        environment: Mapping[str, str] = os.environ,
        load_s: float = LOAD_S,
        memory: Memory | None = None,
        start: StartWorker = Worker.start,
    ) -> None:
        """Store the arguments; start no worker process yet.

        Args:
            library: The libdcmi.so to load.
            conversion: Makes the readings, of rows that it decides upon.
            call_s: Longest duration of one call of libdcmi, before the worker process
                is killed. Unit: seconds, above 0.
            wall_ms: Returns Unix milliseconds now.
            environment: Environment variables of the worker process.
            load_s: Like `call_s`, for loading and initialising libdcmi.
            memory: Stores what the chips have told, for the next start.
            start: Starts a worker process.
        """
        self._library = library
        self._life = Lifecycle(call_s=call_s, load_s=load_s)
        self._wall_ms = wall_ms
        self._environment = environment
        self._memory = memory
        self._start = start
        self._conversion = conversion
        self._worker: Worker | None = None
        #: last message of the present worker: a reading, or why there is none
        self._last_message: Reading | str | None = None
        #: {killed worker that may not have ended: call in which it was lost}
        self._unended: dict[Worker, Call | None] = {}

    async def read(self) -> Reading:
        """Return the worker's oldest unread reading; if all are read, the latest again.

        If no worker process runs, start one and wait for its first message.

        Raises:
            DriverError: No worker runs and none can start now. Or the worker hung, died
                or cannot read the chips. The text has the reason.
        """
        while True:
            worker = await self._get_worker()
            if worker.waiting:
                self._last_message = self._convert(worker.take())
                sign = _sign_of(self._last_message)
                self._life, _ = step(self._life, Showed(sign=sign), clock.loop_s())
            elif self._is_due:
                worker.ask_for_look()
            if self._last_message is None:
                await worker.wait_for_news(CHECK_EACH_S)
            elif isinstance(self._last_message, str):
                raise DriverError(self._last_message)
            else:
                return self._last_message

    async def wait_for_news(self, within_s: float) -> bool:
        """Wait up to `within_s` for a message from the worker process, or for its end.

        Returns:
            Whether `read` has a message to return or a problem to raise. True after
            `within_s` if there is no worker, so that `read` starts one.
        """
        worker = self._worker
        if worker is None:
            await asyncio.sleep(within_s)
            return True
        await worker.wait_for_news(within_s)
        if worker is not self._worker:  # a `read` that goes on has ended it
            return True
        life, effects = self._check(worker)
        if not effects:  # else `read` sees the same, and carries it out
            self._life = life
        return bool(worker.waiting or effects or self._is_due)

    @property
    def known_s(self) -> float:
        """When the last reading was known to be the state of the chips.

        That is now while the worker process rests. What a look has found is not known
        before it is over, and a look takes long if many calls do.
        """
        now_s = clock.loop_s()
        look_s = None if self._worker is None else self._worker.look_s
        return now_s if look_s is None else look_s

    @property
    def _is_due(self) -> bool:
        """Whether another reading follows from the chips, even if none has changed."""
        return self._conversion.due_s <= clock.loop_s()

    def look_now(self) -> None:
        """Have every chip read as soon as the call under way has returned.

        The reading that follows has `Reading.looked_s`.
        """
        if self._worker is not None:
            self._worker.ask_for_look()

    def change_rows(self) -> None:
        """Make readings of the rows that the chips have shown, by the same worker."""
        self._conversion.change_rows()
        self._last_message = None
        self.look_now()

    def expect(self, inventory: Mapping[str, int]) -> None:
        """Take the chips that the Node has had for those of this server; look again."""
        self._conversion.expect(inventory)
        self.look_now()

    async def close(self) -> None:
        """Kill the worker process, if there is one; end the writes to the memory."""
        if self._worker is not None:
            await self._end(self._worker)
        if self._memory is not None:
            await self._memory.flush()

    async def _get_worker(self) -> Worker:
        """Return the running worker process; start one if there is none.

        Raises:
            DriverError: The worker died, or hung and was killed. Or the pause before
                the next worker is not over. Or the file of libdcmi is absent, or is not
                safe to load.
        """
        if self._worker is None:
            self._worker = self._start_worker()
        if self._worker.waiting:
            # also those of a worker that has ended: one may have an event
            return self._worker
        worker = self._worker
        self._life, effects = self._check(worker)
        for effect in effects:
            await self._end(worker, effect.call)
            self._last_message = None  # nothing is read before the next one has shown
            if effect.problem:
                pause_s = self._life.next_start_s - clock.loop_s()
                log.error(
                    "driver worker ended",
                    extra={
                        "reason": effect.problem,
                        "retry_in_s": max(0.0, round(pause_s, 2)),
                    },
                )
                raise DriverError(effect.problem)
            self._worker = worker = self._start_worker()
        return worker

    def _check(self, worker: Worker) -> tuple[Lifecycle, tuple[Replace, ...]]:
        is_freed = any(call and w.has_ended for w, call in self._unended.items())
        check = replace(worker.check(), is_freed=is_freed)
        return step(self._life, check, clock.loop_s())

    async def _end(self, worker: Worker, call: Call | None = None) -> None:
        """Kill the worker; until it has ended it counts, even if this is cancelled."""
        self._worker = None
        self._unended[worker] = call
        await worker.end()
        if worker.has_ended:
            del self._unended[worker]

    def _start_worker(self) -> Worker:
        """Start a worker process.

        Raises:
            DriverError: None can be started now.
        """
        problem = find_library.find_distrust_reason(self._library)
        if problem:
            raise DriverError(problem)
        now = clock.loop_s()
        if now < self._life.next_start_s:
            raise DriverError(self._life.problem)
        for worker in [worker for worker in self._unended if worker.has_ended]:
            del self._unended[worker]
        if len(self._unended) >= MOST_UNENDED:
            pids = ", ".join(str(worker.pid) for worker in self._unended)
            raise DriverError(
                f"{self._life.problem or 'libdcmi should be loaded anew'}; the "
                f"processes {pids} hang in the driver and cannot be ended, so no "
                "other is started before one of them ends"
            )
        # the kernel lets no other call about such a chip come back either
        stuck = {call.any_of_chip: inf for call in self._unended.values() if call}
        left_out = {**self._life.left_out(now), **stuck}
        if not self._conversion.known.identities:
            left_out = {c: s for c, s in left_out.items() if c.function != LIST_CARDS}
        try:
            worker = self._start(
                str(self._library),
                self._environment,
                [(c.function, c.card, c.device, s) for c, s in left_out.items()],
                [
                    (chip.card, chip.device, chip.physical_id, chip.logic_id)
                    for chip in self._conversion.known.identities
                ],
            )
        except OSError as error:  # the machine lacks processes, memory or open files
            raise DriverError(f"no driver worker can be started: {error}") from error
        self._life, _ = step(self._life, Started(), now)
        return worker

    def _convert(self, message: dict[str, Any]) -> Reading | str:
        if "problem" in message:
            return f"{self._library}: {message['problem']}"
        try:
            survey = msgspec.convert(message["survey"], Survey)
            reading = self._conversion.reading(survey, self._wall_ms(), clock.loop_s())
        except (UnknownMachineError, IncompleteError) as error:
            return str(error)
        if self._memory is not None:
            self._memory.store(self._conversion.known)
        return reading


def _sign_of(message: Reading | str) -> Sign:
    """Return which of the expected chips a message shows in their present state."""
    if not isinstance(message, Reading) or message.is_old:
        return Sign.NO_CHIP
    if not any(line.chips for line in message.lines):
        return Sign.NO_CHIP
    is_waiting = message.changed_row and not message.begins_anew
    is_whole = not is_waiting and not any(
        line.product.all_chips & ~chip_sets.mask_of(line.chips)
        for line in message.lines
    )
    return Sign.ALL_CHIPS if is_whole else Sign.SOME_CHIPS
