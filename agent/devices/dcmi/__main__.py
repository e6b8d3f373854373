"""Run the worker process, which calls libdcmi and sends the chips' states to the agent.

The command is `python -m agent.devices.dcmi SOCKET PAGE`. SOCKET is the descriptor of
an open socket to the agent. PAGE is the descriptor of an open file: a memory page where
the agent sees the current libdcmi call. Only `agent.devices.dcmi.worker` starts this
process.

The agent sends the process one message. It has the path of the library, the ids of the
chips that earlier processes have identified, and the calls to skip for a while because
these processes hung or died in them. Whenever the state of a chip has changed, the
process sends the states of all chips. Each further byte of the agent asks for a look:
every chip is read at once, and what was read is sent even if nothing has changed. To
end the process, the agent kills it with SIGKILL.

A call that takes long delays the others by itself alone: before the next one, events
and questions are taken in, and the chips that answer at once are read and sent.
"""

import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from agent.devices.dcmi import frames, structs
from agent.devices.dcmi.library import ABSENT, LEFT_OUT, CallError, Library
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.reader import ChipReader
from agent.devices.dcmi.values import Code, Identity, Survey

#: Pause before a failed library is loaded again: at boot the driver comes late. Unit:
#: seconds.
AGAIN_S = 2.0
#: Time after which fault events are subscribed to although chips are still missing, and
#: again if that failed. Unit: seconds.
SUBSCRIBE_EACH_S = 60.0
#: Highest number of events between two surveys. Polling shows what does not fit.
_MOST_EVENTS = 1000
#: `assertion` of an event whose fault is over.
_OVER = 0
_NO_CODE = 0
#: Longest time without a sign of life while the process waits. Unit: seconds.
_BEAT_EACH_S = 1.0
#: Highest number of questions that are taken together.
_MOST_QUESTIONS = 1024
_PR_SET_PDEATHSIG = 1
_NODES = Path("/sys/devices/system/node")


class Worker:
    """Main loop of the worker process, and queue of the fault events from libdcmi."""

    def __init__(self, sock: socket.socket, progress: Progress) -> None:
        self._sock = sock
        self._progress = progress
        self._events: deque[tuple[int, Code, bool]] = deque(maxlen=_MOST_EVENTS)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        #: {call: seconds after the first look for which it is skipped}
        self._skip_for: dict[Call, float] = {}
        self._first_look_s = inf
        self._library: Library | None = None
        self._chip_reader: ChipReader | None = None
        self._sent: Survey | str = ""
        self._has_tried_to_subscribe = False
        #: when to subscribe to fault events at the latest. Unit: seconds.
        self._subscribe_s = inf
        #: whether the agent has asked for a look
        self._is_asked = False

    def run(self) -> None:
        """Load libdcmi, then send the chips' states to the agent on each change.

        If the states cannot be read, the reason is sent instead. If libdcmi cannot be
        loaded, loading is tried again every 2 s. The method returns when the agent
        ends.
        """
        order = _receive(self._sock)
        self._skip_for = {
            Call(function=function, card=card, device=device): for_s
            for function, card, device, for_s in order["leave_out"]
        }
        chip_reader = self._load(order["library"], order["chips"])
        while chip_reader is None:
            if self._sleep(AGAIN_S):
                return
            chip_reader = self._load(order["library"], order["chips"])
        self._chip_reader = chip_reader
        while True:
            self._progress.begin_look(time.monotonic())
            if chip_reader.is_mixed:
                self._take_turn(chip_reader, is_between=True)
            self._take_turn(chip_reader)
            if self._sleep(chip_reader.pause_s):
                return

    def _take_turn(self, chip_reader: ChipReader, *, is_between: bool = False) -> None:
        """Read the chips whose turn it is, and send what has changed.

        Args:
            is_between: As in `ChipReader.read_chips`.
        """
        began_s = time.monotonic()
        has_events = self._pass_events(chip_reader)
        is_asked, self._is_asked = self._is_asked, False
        survey: Survey | str
        try:
            survey = chip_reader.read_chips(is_asked=is_asked, is_between=is_between)
        except CallError as error:
            survey = str(error)
        self._first_look_s = min(self._first_look_s, time.monotonic())
        self._subscribe_in_time(chip_reader, survey)
        if has_events or survey != self._sent or is_asked:
            self._send(survey)
            self._sent = survey
        self._progress.begin_look(began_s)  # the look that goes on

    def _let_others_in(self) -> None:
        """Give the chips that answer at once their turn, if a call has taken long."""
        if self._chip_reader is None or not self._chip_reader.is_held_up:
            return
        with suppress(BlockingIOError):
            # nothing if the agent has ended: `_sleep` sees it
            self._is_asked = bool(self._sock.recv(_MOST_QUESTIONS, socket.MSG_DONTWAIT))
        self._take_turn(self._chip_reader, is_between=True)

    def _load(self, path: str, chips: list[list[int]]) -> ChipReader | None:
        """Load and initialise the library at `path`.

        If the library cannot be loaded or initialised, send the reason to the agent and
        return None.

        Args:
            chips: Card, device, physical id and logic id of each known chip.
        """
        try:
            library = Library(
                path,
                self._progress,
                leave_out=self._must_skip,
                after_call=self._let_others_in,
            )
            library.init()
        except (OSError, CallError) as error:
            self._send(str(error))
            return None
        self._library = library
        self._subscribe_s = time.monotonic() + SUBSCRIBE_EACH_S
        return ChipReader(
            library,
            now_s=time.monotonic,
            nodes=_NODES,
            known=[
                Identity(card=card, device=device, physical_id=physical, logic_id=logic)
                for card, device, physical, logic in chips
            ],
        )

    def _subscribe_in_time(self, chip_reader: ChipReader, survey: Survey | str) -> None:
        """Subscribe to fault events once all chips are there, or if it is time.

        After a boot libdcmi is loaded before its chips are up. MindCluster, too, waits
        for them before it subscribes. Until then, and if the subscription fails, chips
        are polled each second.
        """
        is_first = not self._has_tried_to_subscribe and (
            isinstance(survey, Survey)
            and bool(survey.chips)
            and not survey.unidentified
        )
        now = time.monotonic()
        if self._library is None or not (is_first or now >= self._subscribe_s):
            return
        self._has_tried_to_subscribe = True
        self._subscribe_s = inf
        try:
            self._library.subscribe(self._queue_event)
        except CallError as error:
            # not every chip has events; a call that hung is not tried again
            if error.code not in (*ABSENT, LEFT_OUT):
                self._subscribe_s = now + SUBSCRIBE_EACH_S
            return
        chip_reader.use_events()

    def _must_skip(self, call: Call) -> bool:
        since_s = time.monotonic() - self._first_look_s
        alike = (call, call.any_of_chip) if self._skip_for else ()
        return any(since_s < self._skip_for.get(one, -inf) for one in alike)

    def _queue_event(self, event: structs.FaultEvent) -> None:
        """Queue a fault event and wake the main thread; a libdcmi thread calls this.

        An event of no code is no fault. Source: MindCluster, `DoSaveDevFaultInfo`.
        """
        if event.event_id == _NO_CODE:
            return
        at_ms = time.time_ns() // 1_000_000
        code = Code(code=event.event_id, severity=event.severity, at_ms=at_ms)
        self._events.append((event.deviceid, code, event.assertion == _OVER))
        with suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _pass_events(self, chip_reader: ChipReader) -> bool:
        """Pass the queued events to `chip_reader`; return whether there was any."""
        has_events = bool(self._events)
        with suppress(BlockingIOError):
            os.read(self._wake_read, _MOST_EVENTS)
        while self._events:
            logic_id, code, is_over = self._events.popleft()
            chip_reader.add_event(logic_id, code, is_over=is_over)
        return has_events

    def _sleep(self, for_s: float) -> bool:
        """Wait at most `for_s` for a fault event or a question of the agent.

        Returns:
            Whether the agent has ended.
        """
        descriptors: list[Any] = [self._sock, self._wake_read]
        until = time.monotonic() + for_s
        while True:
            # a long sleep needs signs of life, too
            rest_s = min(_BEAT_EACH_S, max(0.0, until - time.monotonic()))
            self._progress.beat()
            readable, _, _ = select.select(descriptors, [], [], rest_s)
            self._progress.beat()
            if self._sock in readable:
                self._is_asked = bool(self._sock.recv(_MOST_QUESTIONS))
                return not self._is_asked
            if readable or time.monotonic() >= until:
                return False

    def _send(self, survey: Survey | str) -> None:
        """Send the agent the states of all chips, or why they could not be read."""
        message: dict[str, Any] = {"problem": survey}
        if isinstance(survey, Survey):
            message = {"survey": asdict(survey)}
        self._sock.sendall(frames.encode(message))


def _receive(sock: socket.socket) -> dict[str, Any]:
    head = sock.recv(frames.LENGTH.size, socket.MSG_WAITALL)
    return frames.decode(sock.recv(frames.length_of(head), socket.MSG_WAITALL))


def _die_with(agent: int) -> bool:
    """Let the kernel kill this process when the agent ends, even while a call hangs.

    Returns:
        Whether the agent, a process id, still runs. One that ended before this was
        asked for is never told of again: then nothing would end a call that hangs.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == agent


def main(arguments: list[str]) -> int:
    """Run the worker process until the agent ends; return the exit code 0.

    Args:
        arguments: Numbers of two open descriptors: the socket to the agent, and the
            file of the memory page where the agent sees the current libdcmi call. Then
            the agent's process id.
    """
    descriptor, page, agent = map(int, arguments)
    if not _die_with(agent):
        return 0
    # from a terminal: the agent ends the worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    progress = Progress(page)
    os.close(page)
    with suppress(BrokenPipeError, ConnectionError):
        Worker(socket.socket(fileno=descriptor), progress).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # without waiting for the library's threads
