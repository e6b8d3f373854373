"""Read real chips through a worker process, which is replaced when it hangs or dies.

A worker process that hangs in a call of libdcmi is killed. After a pause, the agent
starts a new worker. The pause grows with each lost worker. If a worker hung or died in
a call that it can do without, later workers skip that call for a while. So one hanging
chip costs only the readings of that chip.

A killed worker within a system call that cannot be interrupted goes on until that call
ends. Of such workers there are two at most: then no other is started.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from agent.devices.board_size import UnknownMachineError
from agent.devices.dcmi import find_library
from agent.devices.dcmi.conversion import Conversion
from agent.devices.dcmi.library import LIST_CARDS
from agent.devices.dcmi.memory import Memory
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.rows import IncompleteError
from agent.devices.dcmi.values import Survey
from agent.devices.dcmi.worker import LOAD_S, LOADING, Worker
from agent.devices.driver import DriverError
from agent.devices.reading import Reading
from scheduler_core.node import chips as chip_sets
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Pause between two checks of a silent worker. Unit: seconds.
CHECK_EACH_S = 0.25
#: Lifetime of a worker after which its successor waits only the first pause. Unit:
#: seconds.
LIVED_WELL_S = 60.0
#: A call that did not return is left out for this time, then twice as long …
LEAVE_OUT_S = 60.0
#: … and at most for this. Unit: seconds.
LEAVE_OUT_MOST_S = 3600.0
#: Killed workers that have not ended, at most: each takes 10 to 25 MiB.
MOST_UNENDED = 2
#: Time after which libdcmi is loaded anew while it shows no chip, or not all of those
#: that are waited for: it may have made its list of cards when it was initialised.
#: Unit: seconds.
RELOAD_EACH_S = 30.0
#: While others are shown, the time is doubled with each time, and at most this.
RELOAD_MOST_S = 3600.0


#: Like `Worker.start`.
StartWorker = Callable[
    [str, Mapping[str, str], Sequence[Sequence[object]], Sequence[Sequence[int]]],
    Worker,
]


@dataclass(slots=True)
class _Blame:
    """Count of workers lost in one libdcmi call, and until when to skip that call."""

    times: int
    until_s: float  #: loop time


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
        new_backoff: Callable[[], Backoff] = Backoff,
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
            new_backoff: Makes the back-off that gives the pause between two workers.
            load_s: Like `call_s`, for loading and initialising libdcmi.
            memory: Stores what the chips have told, for the next start.
            start: Starts a worker process.
        """
        self._library = library
        self._call_s = call_s
        self._wall_ms = wall_ms
        self._environment = environment
        self._backoff = new_backoff()
        self._load_s = load_s
        self._memory = memory
        self._start = start
        self._conversion = conversion
        self._worker: Worker | None = None
        self._next_start_s = float("-inf")
        self._problem = ""
        self._blames: dict[Call, _Blame] = {}
        #: last message of the present worker: a reading, or why there is none
        self._last_message: Reading | str | None = None
        #: time after which libdcmi is loaded anew while some chips are missing
        self._reload_each_s = RELOAD_EACH_S
        #: killed workers that have not ended yet
        self._unended: list[Worker] = []

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker; None if there is no worker now."""
        return self._worker.pid if self._worker else None

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
                is_complete = _is_complete(self._last_message)
                worker.record_message(is_complete=is_complete)
                if is_complete:
                    self._reload_each_s = RELOAD_EACH_S
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
        if self._worker is None:
            await asyncio.sleep(within_s)
            return True
        await self._worker.wait_for_news(within_s)
        problem = self._worker.problem(self._call_s, self._load_s)
        is_to_reload = self._is_to_reload(self._worker)
        return bool(self._worker.waiting or problem or is_to_reload or self._is_due)

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
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.end()
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
        problem = self._worker.problem(self._call_s, self._load_s)
        if not problem and not self._is_to_reload(self._worker):
            return self._worker
        worker, self._worker = self._worker, None
        if problem:
            self._last_message = None
            self._give_up(worker, problem)
        await worker.end()
        if not worker.has_ended:
            self._unended.append(worker)
        if problem:
            raise DriverError(self._problem)
        if not _is_blind(self._last_message):
            self._reload_each_s = min(RELOAD_MOST_S, 2 * self._reload_each_s)
        self._worker = self._start_worker()
        return self._worker

    def _start_worker(self) -> Worker:
        """Start a worker process.

        Raises:
            DriverError: None can be started now.
        """
        problem = find_library.find_distrust_reason(self._library)
        if problem:
            raise DriverError(problem)
        now = clock.loop_s()
        if now < self._next_start_s:
            raise DriverError(self._problem)
        self._unended = [worker for worker in self._unended if not worker.has_ended]
        if len(self._unended) >= MOST_UNENDED:
            pids = ", ".join(str(worker.pid) for worker in self._unended)
            raise DriverError(
                f"{self._problem or 'libdcmi should be loaded anew'}; the processes "
                f"{pids} hang in the driver and cannot be ended, so no other is "
                "started before one of them ends"
            )
        return self._start(
            str(self._library),
            self._environment,
            self._calls_to_leave_out(now),
            [
                (chip.card, chip.device, chip.physical_id, chip.logic_id)
                for chip in self._conversion.known.identities
            ],
        )

    def _is_to_reload(self, worker: Worker) -> bool:
        """Whether a worker has not shown chips for long, which a new one might."""
        is_blind = _is_blind(self._last_message)
        each_s = RELOAD_EACH_S if is_blind else self._reload_each_s
        since_s = worker.incomplete_since_s
        return since_s is not None and clock.loop_s() - since_s >= each_s

    def _give_up(self, worker: Worker, problem: str) -> None:
        """Log why `worker` failed, and set the pause before the next one starts.

        If the worker failed in a call that it can do without, later workers skip that
        call for 60 s. Each further failure in the same call doubles this time, up to
        1 h, unless the call has come back for 1 h since.
        """
        now = clock.loop_s()
        if now - worker.started_s > LIVED_WELL_S:
            self._backoff.reset()
        self._problem = problem
        pause_s = self._backoff.next_s()
        self._next_start_s = now + pause_s
        if worker.last_call is not None and self._can_leave_out(worker.last_call):
            blame = self._blames.setdefault(worker.last_call, _Blame(0, now))
            if now - blame.until_s > LEAVE_OUT_MOST_S:
                blame.times = 0  # it has come back all the while
            blame.times += 1
            doubled_s = LEAVE_OUT_S * 2 ** min(blame.times - 1, 10)
            blame.until_s = now + min(LEAVE_OUT_MOST_S, doubled_s)
        log.error(
            "driver worker ended",
            extra={"reason": problem, "retry_in_s": round(pause_s, 2)},
        )

    def _can_leave_out(self, call: Call) -> bool:
        """Whether chips can be read without a call.

        The list of cards is needed as long as no chip is known.
        """
        if call.function == LIST_CARDS:
            return bool(self._conversion.known.identities)
        return call.function not in LOADING

    def _calls_to_leave_out(self, now: float) -> list[list[object]]:
        return [
            [call.function, call.card, call.device, blame.until_s - now]
            for call, blame in self._blames.items()
            if blame.until_s > now
        ]

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
        return replace(reading, looked_s=message.get("began_s"))


def _is_blind(message: Reading | str | None) -> bool:
    """Whether a message of a worker shows the present state of no chip."""
    if not isinstance(message, Reading) or message.is_old:
        return True
    return not any(line.chips for line in message.lines)


def _is_complete(message: Reading | str) -> bool:
    """Whether a message of a worker shows all chips of the rows that are served."""
    if not isinstance(message, Reading) or message.is_old:
        return False
    is_waiting = message.changed_row and not message.begins_anew
    return not is_waiting and not any(
        line.product.all_chips & ~chip_sets.mask_of(line.chips)
        for line in message.lines
    )
