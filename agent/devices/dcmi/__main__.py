"""The worker: `python -m agent.devices.dcmi SOCKET PAGE`, both open descriptors.

Started by `agent.devices.dcmi.driver` and by nobody else. It is told once what to
load and what to leave out, and says what it finds whenever that has changed, until
the agent goes. It never waits for the agent, and the agent ends it by killing it.
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
from pathlib import Path
from typing import Any

from agent.devices.dcmi import frames, structs
from agent.devices.dcmi.library import CallError, Library
from agent.devices.dcmi.progress import Call, Progress
from agent.devices.dcmi.reader import Looker
from agent.devices.dcmi.values import Code, Survey

#: A chip that has recovered is seen again after so long, event or not.
LOOK_EACH_S = 1.0
#: A library that cannot begin yet is tried again: at boot the driver comes late.
AGAIN_S = 2.0
#: Events that may wait for one look. What does not fit is seen by polling.
_MOST_EVENTS = 1000
#: `assertion` of an event: the fault is over.
_OVER = 0
_PR_SET_PDEATHSIG = 1
_NODES = Path("/sys/devices/system/node")


class Worker:
    """Protects the library of this process and the events that it has sent."""

    def __init__(self, sock: socket.socket, progress: Progress) -> None:
        """Begin by waiting for what to do."""
        self._sock = sock
        self._progress = progress
        self._events: deque[tuple[int, Code, bool]] = deque(maxlen=_MOST_EVENTS)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._left_out: dict[Call, float] = {}

    def run(self) -> None:
        """Work until the agent goes."""
        told = _receive(self._sock)
        now = time.monotonic()
        self._left_out = {
            Call(function=function, card=card, device=device): now + for_s
            for function, card, device, for_s in told["leave_out"]
        }
        looker = self._looker(told["library"])
        while looker is None:
            if self._sleep(AGAIN_S):
                return
            looker = self._looker(told["library"])
        said: Survey | str = ""
        while True:
            self._deliver(looker)
            found = self._look(looker)
            if found != said:
                self._tell(found)
                said = found
            if self._sleep(LOOK_EACH_S):
                return

    def _looker(self, path: str) -> Looker | None:
        """Begin; None if that fails, and the agent is told why."""
        try:
            library = Library(path, self._progress, leave_out=self._is_left_out)
            library.init()
        except (OSError, CallError) as error:
            self._tell(str(error))
            return None
        # not every chip has events; then polling is all there is
        with suppress(CallError):
            library.subscribe(self._take_in)
        return Looker(library, now_s=time.monotonic, nodes=_NODES)

    @staticmethod
    def _look(looker: Looker) -> Survey | str:
        try:
            return looker.look()
        except CallError as error:
            return str(error)

    def _is_left_out(self, call: Call) -> bool:
        until = self._left_out.get(call)
        return until is not None and time.monotonic() < until

    def _take_in(self, event: structs.FaultEvent) -> None:
        """Take in an event; in a thread of the library."""
        at_ms = time.time_ns() // 1_000_000
        code = Code(code=event.event_id, severity=event.severity, at_ms=at_ms)
        self._events.append((event.deviceid, code, event.assertion == _OVER))
        with suppress(BlockingIOError):
            os.write(self._wake, b"!")

    def _deliver(self, looker: Looker) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, _MOST_EVENTS)
        while self._events:
            logic_id, code, is_over = self._events.popleft()
            looker.take_in(logic_id, code, is_over=is_over)

    def _sleep(self, for_s: float) -> bool:
        """Wait for an event, for so long at most; return whether the agent has gone."""
        watched: list[Any] = [self._sock, self._woken]
        self._progress.beat()
        readable, _, _ = select.select(watched, [], [], for_s)
        self._progress.beat()
        return self._sock in readable  # it says nothing more, so this is its end

    def _tell(self, found: Survey | str) -> None:
        """Say what was found, or why nothing was."""
        message: dict[str, Any]
        if isinstance(found, str):
            message = {"problem": found}
        else:
            message = {"survey": asdict(found)}
        self._sock.sendall(frames.encode(message))


def _receive(sock: socket.socket) -> dict[str, Any]:
    head = sock.recv(frames.LENGTH.size, socket.MSG_WAITALL)
    return frames.decode(sock.recv(frames.length_of(head), socket.MSG_WAITALL))


def _die_with_parent() -> None:
    """End when the agent does, even within a call that never comes back."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Work until the agent goes."""
    descriptor, page = map(int, arguments)
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: the agent ends us
    progress = Progress(page)
    os.close(page)
    with suppress(BrokenPipeError, ConnectionError):
        Worker(socket.socket(fileno=descriptor), progress).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # the library's threads are not waited for
