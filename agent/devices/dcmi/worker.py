"""Start, watch and kill the worker process that calls libdcmi for the agent."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import agent
from agent.devices.dcmi import frames
from agent.devices.dcmi.lifecycle import Checked
from agent.devices.dcmi.progress import Progress
from service import clock

#: Highest number of messages that wait for the agent. Further ones wait in the socket.
_MOST_WAITING = 64
#: Longest wait for the end of a killed worker. Unit: seconds. A worker within an
#: uninterruptible system call ends after that call; until then the agent ignores it.
_END_S = 1.0


class Worker:
    """Worker process that calls libdcmi, with its socket and its unread messages."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        progress: Progress,
        sock: socket.socket,
    ) -> None:
        """Store the process that `start` has just started; only `start` calls this."""
        #: messages that the driver has not taken yet, the oldest first
        self.waiting: deque[dict[str, Any]] = deque()
        self._process = process
        self._progress = progress
        self._sock = sock
        self._message_event = asyncio.Event()
        self._taken_event = asyncio.Event()
        self._end_reason = ""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    def start(
        cls,
        library: str,
        environment: Mapping[str, str],
        leave_out: Sequence[Sequence[object]],
        chips: Sequence[Sequence[int]] = (),
    ) -> "Worker":
        """Start the worker process, a new Python interpreter that loads `library`.

        Args:
            library: Path of the library to load.
            environment: Environment variables of the process.
            leave_out: (function, card, device, seconds) of each call of libdcmi that
                the worker process must skip for these seconds after its start.
            chips: (card, device, physical id, logic id) of each chip that was
                identified earlier.
        """
        agent_socket, worker_socket = socket.socketpair()
        page = Progress.create()
        try:
            process = subprocess.Popen(  # noqa: S603  # our own program
                [
                    # -P: a file of that name in the working folder is another's.
                    *(sys.executable, "-P", "-m", "agent.devices.dcmi"),
                    *(str(worker_socket.fileno()), str(page), str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # drivers print there unasked
                pass_fds=(worker_socket.fileno(), page),
                env={**environment, "PYTHONPATH": _python_path(environment)},
            )
            progress = Progress(page)
        except BaseException:
            agent_socket.close()
            raise
        finally:
            worker_socket.close()
            os.close(page)
        order = {"library": library, "leave_out": leave_out, "chips": chips}
        agent_socket.sendall(frames.encode(order))  # fits into the socket: no wait
        agent_socket.setblocking(False)  # noqa: FBT003  # the standard library's signature
        return cls(process, progress, agent_socket)

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the worker process has ended; one within the kernel ends late."""
        return self._process.poll() is not None

    @property
    def look_s(self) -> float | None:
        """As `Progress.look_s`."""
        return self._progress.look_s

    def ask_for_look(self) -> None:
        """Ask the worker to read every chip now and to send what it has read."""
        with suppress(OSError):  # it has ended, or has not read a thousand questions
            self._sock.send(b"?")

    async def wait_for_news(self, within_s: float) -> None:
        """Wait up to `within_s` until the worker process sends a message or ends."""
        if self.waiting or self._end_reason:
            await asyncio.sleep(0)
            return
        self._message_event.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._message_event.wait()

    def take(self) -> dict[str, Any]:
        """Return the oldest waiting message, which then waits no longer."""
        self._taken_event.set()
        return self.waiting.popleft()

    def check(self) -> Checked:
        """Return its last sign of life, the call under way, and whether it has ended.

        A worker that talks nonsense counts as ended.
        """
        page = self._progress
        return Checked(beats=page.beats, call=page.call, end_reason=self._end_reason)

    async def end(self) -> None:
        """Kill the worker process, wait up to 1 s for its end, and close its socket."""
        self._process.kill()
        self._listening.cancel()
        try:
            await asyncio.wait({self._listening})
            await self._exit_code()
        finally:
            self._sock.close()
            self._progress.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                head = await self._receive(loop, frames.LENGTH.size)
                body = await self._receive(loop, frames.length_of(head))
                self.waiting.append(frames.decode(body))
                self._message_event.set()
                while len(self.waiting) >= _MOST_WAITING:
                    # none is dropped: it may be the only one that has an event. Once
                    # the socket is full, the worker process waits and counts events
                    self._taken_event.clear()
                    await self._taken_event.wait()
        except (OSError, EOFError):
            self._end_reason = await self._describe_end()
        except frames.FrameError as error:
            self._end_reason = f"talks nonsense: {error}"
        self._message_event.set()

    async def _receive(self, loop: asyncio.AbstractEventLoop, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            chunk = await loop.sock_recv(self._sock, count - len(received))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)

    async def _describe_end(self) -> str:
        """Return how the worker process ended, like "was ended by SIGSEGV"."""
        code = await self._exit_code()
        if code is None:
            return "has closed its socket"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"has ended with exit code {code}"

    async def _exit_code(self) -> int | None:
        """Return the worker process's exit code; None if it still runs after 1 s."""
        until = clock.loop_s() + _END_S
        while (code := self._process.poll()) is None:
            if clock.loop_s() > until:
                break
            await asyncio.sleep(0.01)
        return code


def _python_path(environment: Mapping[str, str]) -> str:
    """Return the PYTHONPATH of a worker: our packages, then what it has anyway."""
    paths = [str(Path(agent.__file__).parents[1]), environment.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths))
