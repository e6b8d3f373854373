"""Read from /proc the names and users of processes, for people.

A name decides nothing, so nothing but texts may wait for it. A thread of its own reads
names, and the caller waits for it at most until a deadline. After one that did not come
in time there are no names, until that thread has come back. So at most one thread is
lost.

Only what every process may read is used, so no capability is necessary. But a container
sees the host's processes only with `hostPID`.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from service.worker import Worker

log = logging.getLogger(__name__)

PROC = Path("/proc")
#: Longest wait for names; a thousand take some 20 ms. Unit: seconds.
DEADLINE_S = 1.0
_NAME_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Pid, program name and user id of a process on a chip."""

    pid: int
    #: Its first 15 bytes, as the kernel keeps them; "" when unknown.
    name: str = ""
    #: Number of its user; None when unknown.
    user: int | None = None

    def __str__(self) -> str:
        """Return the text for people, like `4711 (python3, uid 1000)`."""
        facts = [self.name] if self.name else []
        facts += [] if self.user is None else [f"uid {self.user}"]
        return f"{self.pid} ({', '.join(facts)})" if facts else str(self.pid)


class ProcessNames:
    """Reader of names and users, which gives up when the files do not answer."""

    def __init__(self, proc: Path = PROC, *, deadline_s: float = DEADLINE_S) -> None:
        """Store the arguments; read nothing yet.

        Args:
            proc: Folder with a folder for each process.
            deadline_s: Longest wait for the thread. Unit: seconds.
        """
        self._proc = proc
        self._deadline_s = deadline_s
        self._worker = Worker("process names")
        #: newest call that missed its deadline
        self._late: asyncio.Future[None] | None = None
        self._is_announced = False

    async def describe(self, pids: Collection[int]) -> Mapping[int, Occupant]:
        """Return the program name and user of each of these processes, by pid.

        The result has every pid. The name is "" and the user None if the agent cannot
        see the process, or if the thread does not answer in time. While a call before
        this one has not come back, the method returns at once, without names.
        """
        named: list[Occupant] = []
        if self._late is None or self._late.done():
            call = self._worker.call(_describe, self._proc, tuple(pids), named)
            done, _ = await asyncio.wait({call}, timeout=self._deadline_s)
            if not done:
                self._give_up(call)
        occupants = {occupant.pid: occupant for occupant in tuple(named)}
        return {pid: Occupant(pid=pid) for pid in pids} | occupants

    def _give_up(self, call: "asyncio.Future[None]") -> None:
        """Ask for no more names until a call has come back; say so the first time."""
        self._late = call
        if self._is_announced:
            return
        self._is_announced = True
        reason = f"{self._proc} has not named a process for {self._deadline_s:g} s"
        log.warning("names of processes given up", extra={"reason": reason})


def _describe(proc: Path, pids: tuple[int, ...], named: list[Occupant]) -> None:
    """Append each process that can be seen to `named`, one by one.

    A command line is not read. The kernel locks the process's memory for it, and a
    process that hangs in a driver may have that lock for ever.
    """
    for pid in pids:
        folder = proc / str(pid)
        try:
            name = (folder / "comm").read_text(encoding="utf-8", errors="replace")
            user = folder.stat().st_uid
        except OSError:  # it has ended, or is not visible to the agent
            continue
        # a program's name can have any bytes
        shown = "".join(c if c.isprintable() else "?" for c in name.rstrip("\n"))
        named.append(Occupant(pid=pid, name=shown[:_NAME_CHARACTERS], user=user))
