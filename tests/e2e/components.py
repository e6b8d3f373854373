"""The cluster's programs: started, ended, killed, frozen and found again.

Each carries a mark in its environment. It is found by that mark and not by a number
that was written down, so that a cluster which another process started can be taken
over, and a number that the system has given away again cannot mislead anybody.
"""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.commands import until
from tests.e2e.stages import CannotError

MARK = "ASCEND_E2E_COMPONENT"
_TOLD_LINES = 12
#: A bound for machines that are many times slower than ours.
_READY_WITHIN_S = 180.0
_GRACE_S = 15.0
#: Kept only because subprocess warns of children that are forgotten while they run.
_children: list[subprocess.Popen[bytes]] = []


def marked() -> Iterator[tuple[int, str]]:
    """Yield pid and mark of every process that we, or ours, started."""
    prefix = f"{MARK}=".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # it ended, or it is the kernel's
        for line in environment.split(b"\0"):
            if line.startswith(prefix):
                yield int(entry.name), line.removeprefix(prefix).decode()


def argv(pid: int) -> list[str]:
    """The words that a process was started with; none if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def end(pid: int, number: signal.Signals, *, within_s: float) -> bool:
    """Send a signal and wait until the process has gone; False if it does not go.

    Gone with all its threads, whose sockets would otherwise still be open: only then
    is its file descriptor readable. Its environment is gone long before that.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(descriptor, number)
        return bool(select.select([descriptor], [], [], within_s)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One program of the cluster."""

    name: str
    command: Sequence[str]
    log: Path
    #: says whether it serves already
    is_ready: Callable[[], bool]

    @property
    def pid(self) -> int | None:
        """The number of its process; None if it does not run."""
        for pid, name in marked():
            if name == self.name and argv(pid) == [*self.command]:
                return pid
        return None

    @property
    def is_running(self) -> bool:
        """Whether there is a process, be it frozen."""
        return self.pid is not None

    def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            CannotError: It runs already, it ended, or it does not get ready.
        """
        if self.is_running:
            raise CannotError(f"{self.name} runs already")
        with self.log.open("ab") as out:
            process = subprocess.Popen(  # noqa: S603  # our own programs
                [*self.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self.name},
                start_new_session=True,
            )
        _children.append(process)
        self.wait_ready(process)

    def wait_ready(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until it serves."""

        def ready() -> bool:
            if process is not None and process.poll() is not None:
                raise CannotError(
                    f"{self.name} ended, exit code {process.returncode}; "
                    f"its last words ({self.log}):\n{self.last_words()}"
                )
            return self.is_ready()

        until(
            ready,
            lambda: (
                f"{self.name} ready; its last words ({self.log}):\n{self.last_words()}"
            ),
            within_s=_READY_WITHIN_S,
        )

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it does not run."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def stop(self) -> None:
        """Ask it to end; kill it when it does not."""
        self.thaw()
        pid = self.pid
        if pid is not None and not end(pid, signal.SIGTERM, within_s=_GRACE_S):
            self.kill()

    def kill(self) -> None:
        """End it as a fault would: `kill -9`."""
        pid = self.pid
        if pid is not None and not end(pid, signal.SIGKILL, within_s=60):
            raise CannotError(f"{self.name} (pid {pid}) survives kill -9")

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        self.tell(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.tell(signal.SIGCONT)

    def restart(self) -> None:
        """Stop it properly and start it again."""
        self.stop()
        self.start()

    def last_words(self, lines: int = _TOLD_LINES) -> str:
        """The end of its log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(it said nothing)"
