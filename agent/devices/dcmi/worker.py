"""One worker process, as the agent has it: what it says, and whether it still works."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from agent.devices.dcmi import frames
from agent.devices.dcmi.progress import Call, Progress
from service import clock

#: Messages that may wait for us.
_MOST_WAITING = 64
#: How long a worker that was killed may take to go. One within a system call that
#: cannot be interrupted goes when that has ended, and is nobody's concern meanwhile.
_END_S = 1.0
#: So long it may be silent between two calls: it rests there, up to two seconds.
_REST_S = 3.0
#: A pause of our own that is longer than this says nothing about the worker.
_LONGEST_STEP_S = 1.0


class Worker:
    """Protects a process, the socket to it, and what it has said."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        progress: Progress,
        sock: socket.socket,
    ) -> None:
        """Take over a process that was just started; `start` is the way here."""
        self.started_s = clock.loop_s()
        #: what it has said and nobody has taken, the oldest first
        self.waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        #: the call that it was in when it was last found not to work
        self.last_call: Call | None = None
        self._process = process
        self._progress = progress
        self._sock = sock
        self._beats = -1
        self._silent_s = 0.0
        self._checked_s = self.started_s
        self._news = asyncio.Event()
        self._ended = ""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    def start(
        cls,
        library: str,
        environment: Mapping[str, str],
        leave_out: Sequence[Sequence[object]],
    ) -> "Worker":
        """Start a process of our own interpreter: a fresh one, never a fork of us.

        Args:
            library: What it loads.
            environment: Its environment variables.
            leave_out: (function, card, device, seconds) of calls not to make.
        """
        ours, theirs = socket.socketpair()
        page = Progress.create()
        try:
            process = subprocess.Popen(  # noqa: S603  # our own program
                [
                    *(sys.executable, "-m", "agent.devices.dcmi"),
                    *(str(theirs.fileno()), str(page)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # drivers print there what nobody asked for
                pass_fds=(theirs.fileno(), page),
                env=dict(environment),
            )
            progress = Progress(page)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(page)
        told = {"library": library, "leave_out": leave_out}
        ours.sendall(frames.encode(told))  # fits into the socket: nobody waits
        ours.setblocking(False)  # noqa: FBT003  # the standard library's signature
        return cls(process, progress, ours)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def news(self, within_s: float) -> None:
        """Wait until it has said something or has ended, or for so long."""
        if self.waiting or self._ended:
            await asyncio.sleep(0)
            return
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    def problem(self, call_s: float) -> str:
        """Say what is wrong with it; "" while it works.

        Only time that we were there to see counts as silence: an agent that was
        itself kept from running must not take its worker for the one that hung.

        Args:
            call_s: How long one call may take; what is between two may take longer.
                Unit: seconds.
        """
        if self._ended:
            self.last_call = self._progress.call
            where = f" in {self.last_call}" if self.last_call else ""
            return f"the driver worker {self._ended}{where}"
        now = clock.loop_s()
        step_s, self._checked_s = now - self._checked_s, now
        beats = self._progress.beats
        if beats != self._beats:
            self._beats, self._silent_s = beats, 0.0
            return ""
        self._silent_s += min(step_s, _LONGEST_STEP_S)
        call = self._progress.call
        patience_s = call_s if call else max(call_s, _REST_S)
        if self._silent_s < patience_s:
            return ""
        self.last_call = call
        where = str(call) if call else "the driver worker"
        return f"{where} has not come back for {patience_s:g} s"

    async def end(self) -> None:
        """Kill it; returns also if that takes it long."""
        self._listening.cancel()
        await asyncio.wait({self._listening})
        self._process.kill()
        await self._exit_code()
        self._sock.close()
        self._progress.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                head = await self._received(loop, frames.LENGTH.size)
                body = await self._received(loop, frames.length_of(head))
                self.waiting.append(frames.decode(body))
                self._news.set()
        except (OSError, EOFError):
            self._ended = await self._how()
        except frames.FrameError as error:
            self._ended = f"talks nonsense: {error}"
        self._news.set()

    async def _received(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            some = await loop.sock_recv(self._sock, count - len(received))
            if not some:
                raise EOFError
            received += some
        return bytes(received)

    async def _how(self) -> str:
        """Say how it has ended; its socket is closed a moment before it is gone."""
        code = await self._exit_code()
        if code is None:
            return "has closed its socket"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"has ended with exit code {code}"

    async def _exit_code(self) -> int | None:
        """Wait until it is gone, but not for long; None if it is not."""
        until = clock.loop_s() + _END_S
        while (code := self._process.poll()) is None:
            if clock.loop_s() > until:
                break
            await asyncio.sleep(0.01)
        return code
