"""Worker processes in the loop of the test, on a libdcmi whose calls may last.

The agent's side is real: messages, memory page, deadlines, blame. A worker makes its
calls in a thread of its own, which goes on only while the loop waits for it.
"""

import asyncio
import json
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

from agent.devices.dcmi import frames
from agent.devices.dcmi.library import CallError, Library
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.values import SLOW, Code, Identity, Survey
from agent.devices.dcmi.worker import Worker
from tests.agent.devices.rude_library import Answer, RudeLibrary, Word

#: As the program of the worker has them. Unit: seconds.
BEAT_EACH_S = 1.0
LOAD_AGAIN_S = 2.0
#: Pause between two looks, so that the loop goes on. Unit: seconds.
SHORTEST_S = 0.01


class _KilledError(BaseException):
    """The process of a call was killed. No code of the project catches this."""


class _Fiber:
    """A function in a thread that goes on only while the loop waits for it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._pause_s: float | None = None
        self._is_killed = False
        self._errors: list[BaseException] = []

    async def run(self) -> None:
        """Run the function to its end, with all the time that it takes."""
        self._thread.start()
        try:
            while True:
                self._go.release()
                self._back.acquire()  # the loop stands still meanwhile
                if self._pause_s is None:
                    break
                await _sleep(self._pause_s)
        except asyncio.CancelledError:
            self._is_killed = True
            self._go.release()
            raise
        finally:
            self._thread.join()
        if self._errors:
            raise self._errors[0]

    def wait(self, for_s: float) -> None:
        """Let time pass; called in the thread."""
        self._pause_s = for_s
        self._back.release()
        self._go.acquire()
        if self._is_killed:
            raise _KilledError

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._function()
        except _KilledError as killed:
            if self._is_killed:
                return
            self._errors.append(killed)
        except BaseException as error:  # noqa: BLE001  # it is raised in the loop
            self._errors.append(error)
        self._pause_s = None
        self._back.release()


async def _sleep(for_s: float) -> None:
    if for_s == inf:
        await asyncio.Event().wait()
    await asyncio.sleep(for_s)


class RudeProcess:
    """One worker process; to the agent it looks like a `subprocess.Popen`."""

    def __init__(
        self,
        library: RudeLibrary,
        sock: socket.socket,
        progress: Progress,
        *,
        pid: int,
        order: Mapping[str, Any],
    ) -> None:
        self.pid = pid
        self.answers: dict[int, Answer] = {}
        #: {chip: what its last look that is over has told}
        self._told: dict[int, Answer] = {}
        self.is_killed = False
        self._library = library
        self._socket = sock
        self._progress = progress
        self._order = order
        self._events: deque[tuple[int, Code, bool]] = deque()
        #: {chip: codes of events that began a fault, not told beside its codes yet}
        self._pulses: dict[int, set[int]] = {}
        self._wake = asyncio.Event()
        self._is_asked = False
        self._is_subscribed = False
        self._reader: ChipReader | None = None
        self._sent: Survey | str = ""
        self._first_look_s = inf
        #: when loading began; None: it does not load
        self.loading: float | None = None
        #: after how many seconds the agent has ended it while it loaded
        self.cut_load_s: float | None = None
        self._fiber: _Fiber | None = None
        self._skip_for = {
            Call(function=function, card=card, device=device): for_s
            for function, card, device, for_s in order["leave_out"]
        }
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._take_question)
        self._task = asyncio.create_task(self._run())

    # as the agent sees it

    def kill(self) -> None:
        """Kill it; within a call of the kernel it ends only with that call."""
        self.is_killed = True
        if self.loading is not None and not self._has_ended:
            self.cut_load_s = self._loop.time() - self.loading
        if not (self._library.is_in_kernel and self.is_in_call):
            self.end_process()

    def poll(self) -> int | None:
        return -signal.SIGKILL if self._task.done() else None

    # as the test sees it

    @property
    def _has_ended(self) -> bool:
        return self._socket.fileno() < 0

    @property
    def is_in_call(self) -> bool:
        """Whether a call is under way that takes time; not one that loads."""
        return self.call is not None and self.loading is None

    @property
    def call(self) -> Call | None:
        """The call under way."""
        return None if self._task.done() else self._progress.call

    @property
    def is_well(self) -> bool:
        """Whether it has read chips, and is within no call."""
        return (
            not self.is_killed
            and not self._task.done()
            and self._first_look_s < inf
            and self.call is None
        )

    def end_process(self) -> None:
        """Let it end, as if somebody else had killed it."""
        if not self._has_ended:
            self._loop.remove_reader(self._socket)
            self._task.cancel()
            self._socket.close()

    async def join(self) -> None:
        """Wait for its end; raise what it ended with, if that was nobody's wish."""
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()

    def failure(self) -> BaseException | None:
        """With what it has ended by itself."""
        task = self._task
        return task.exception() if task.done() and not task.cancelled() else None

    def send_event(self, chip: int, code: int, *, at_ms: int, is_over: bool) -> None:
        """Have the library call back, if the worker has subscribed."""
        if self._is_subscribed and not self._task.done():
            event = Code(code=code, severity=2, at_ms=at_ms)
            self._events.append((chip, event, is_over))
            self._wake.set()

    # as the library sees it

    def leave_out(self, call: Call) -> bool:
        for_s = self._skip_for.get(call)
        return for_s is not None and self._loop.time() - self._first_look_s < for_s

    def begin(self, call: Call) -> None:
        self._progress.begin(call)

    def end(self) -> None:
        if not self._task.done():
            self._progress.end()

    def after_call(self) -> None:
        if self._reader is not None and self._reader.is_held_up:
            self._take_turn(self._reader, is_between=True)

    def wait(self, for_s: float) -> None:
        assert self._fiber is not None
        self._fiber.wait(for_s)
        if self.is_killed:  # it was within the kernel
            raise _KilledError

    # its program

    async def _run(self) -> None:
        try:
            await self._load()
            await self._work()
        except _KilledError:
            self.end_process()
        finally:
            self._progress.close()

    async def _load(self) -> None:
        library = self._library
        while True:
            self._progress.begin(Call(function="dcmi_init"))
            self.loading = self._loop.time()
            await _sleep(library.load_s)
            self.loading = None
            self._progress.end()
            if not library.load_error:
                library.load()
                return
            call = Call(function="dcmi_init")
            self._send({"problem": str(CallError(call, library.load_error))})
            self._is_asked = False
            await self._rest(LOAD_AGAIN_S)

    async def _work(self) -> None:
        reader = ChipReader(
            cast("Library", self._library),
            now_s=self._loop.time,
            nodes=Path("/none"),
            known=[
                Identity(card=card, device=device, physical_id=physical, logic_id=logic)
                for card, device, physical, logic in self._order["chips"]
            ],
        )
        self._reader = reader
        while True:
            self._progress.begin_look(self._loop.time())
            if reader.is_mixed:
                await self._do(partial(self._take_turn, reader, is_between=True))
            await self._do(partial(self._take_turn, reader))
            await self._rest(max(SHORTEST_S, reader.pause_s))

    def _take_turn(self, reader: ChipReader, *, is_between: bool = False) -> None:
        self._library.caller = self
        began_s = self._loop.time()
        has_events = bool(self._events)
        while self._events:
            chip, code, is_over = self._events.popleft()
            if not is_over:
                self._pulses.setdefault(chip, set()).add(code.code)
            reader.add_event(chip, code, is_over=is_over)
        is_asked, self._is_asked = self._is_asked, False
        survey: Survey | str
        try:
            survey = reader.read_chips(is_asked=is_asked, is_between=is_between)
        except CallError as error:
            survey = str(error)
        self._first_look_s = min(self._first_look_s, self._loop.time())
        if self._library.has_events and not self._is_subscribed:
            self._subscribe(reader, survey)
        self._hand_on(survey, is_between=is_between)
        if has_events or survey != self._sent or is_asked:
            key = "problem" if isinstance(survey, str) else "survey"
            content = survey if isinstance(survey, str) else asdict(survey)
            self._send({key: content})
            self._sent = survey
        self._progress.begin_look(began_s)

    def _subscribe(self, reader: ChipReader, survey: Survey | str) -> None:
        if isinstance(survey, Survey) and survey.chips and not survey.unidentified:
            self._is_subscribed = True
            reader.use_events()

    async def _do(self, turn: Callable[[], None]) -> None:
        if not self._library.hangs:  # no call takes time
            turn()
            return
        self._fiber = _Fiber(turn)
        await self._fiber.run()

    def _hand_on(self, survey: Survey | str, *, is_between: bool) -> None:
        """Note what the agent knows now.

        Of a chip whose look is not over, or that is slow, it knows what it knew before.
        """
        truth, now_s = self._library.truth, self._loop.time()
        states = survey.chips if isinstance(survey, Survey) else ()
        slow = {state.identity.card for state in states if state.unread == SLOW}
        for chip, codes in self._pulses.items():
            table = truth.answers if chip in slow else self.answers
            answer = table.get(chip, Answer(word=Word.RUDE))
            merged = replace(answer, codes=tuple(codes | {*answer.codes}))
            (self._told if chip in slow else self.answers)[chip] = merged
        self._told |= {c: a for c, a in self.answers.items() if c not in slow}
        truth.answers = {**(truth.answers if is_between else {}), **self._told}
        for chip in slow:
            if chip in truth.answers and truth.answers[chip].has_pids is not None:
                truth.answers[chip] = replace(truth.answers[chip], has_pids=False)
        truth.looked_s = now_s
        for chip, answer in truth.answers.items():
            if answer.word is Word.TOLD:
                truth.told_s[chip] = now_s
            if answer.word is Word.GONE:
                truth.gone_s[chip] = now_s
            truth.codes_s |= {(chip, code): now_s for code in answer.codes}
        self._pulses = {
            chip: codes
            for chip, codes in self._pulses.items()
            if chip in slow or self.answers[chip].word is not Word.TOLD
        }

    async def _rest(self, for_s: float) -> None:
        """Sleep until an event or a question, with signs of life."""
        until_s = self._loop.time() + for_s
        while not (self._wake.is_set() or self._is_asked):
            rest_s = min(BEAT_EACH_S, until_s - self._loop.time())
            self._progress.beat()
            if rest_s <= 0:
                break
            timer = self._loop.call_later(rest_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            if not self._events:
                self._wake.clear()
        self._wake.clear()

    def _take_question(self) -> None:
        if self._socket.recv(1024):
            self._is_asked = True
            self._wake.set()
        else:
            self._loop.remove_reader(self._socket)

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(frames.encode(message))


class RudeWorkers:
    """Starts them. Protects those that have been started."""

    def __init__(self, library: RudeLibrary) -> None:
        self.processes: list[RudeProcess] = []
        self._library = library

    def start(
        self,
        _path: str,
        _environment: Mapping[str, str],
        leave_out: Sequence[Sequence[object]],
        chips: Sequence[Sequence[int]],
    ) -> Worker:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003  # the standard library's signature
        page = Progress.create()
        process = RudeProcess(
            self._library,
            theirs,
            Progress(page),
            pid=1000 + len(self.processes),
            order=json.loads(json.dumps({"leave_out": leave_out, "chips": chips})),
        )
        self.processes.append(process)
        progress = Progress(page)
        os.close(page)
        return Worker(cast("Any", process), progress, ours)

    @property
    def last(self) -> RudeProcess:
        """The one that was started last."""
        return self.processes[-1]

    def end(self) -> None:
        """End all, as the kernel does at last."""
        for process in self.processes:
            process.end_process()
