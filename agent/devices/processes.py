"""Read from /proc the names of processes, and which processes belong to which pod.

Only files that every process may read are used, so no capability is necessary. But a
container sees the host's processes only with `hostPID`. Without it, `describe` returns
no names, and `pids_of_pods` leaves the processes out.

If a process hangs in a driver, reading its files in /proc can block too. So a thread
reads, and the caller waits for that thread at most until a deadline.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from service import clock
from service.worker import Worker

T = TypeVar("T")

PROC = Path("/proc")
#: Longest wait for an answer; a thousand processes take some 20 ms. Unit: seconds.
DEADLINE_S = 1.0
#: Highest number of returned processes of one pod.
_MOST_OF_A_POD = 8
_NAME_CHARACTERS = 64
#: Name of a pod's group with both cgroup drivers of the kubelet, whole or as seen from
#: another group: `…/pod<uid>/…`, `…-pod<uid with _>.slice/…`.
_GROUP = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Pid, program name and user id of a process on a chip."""

    pid: int
    #: "" when unknown
    name: str = ""
    #: Number of its user; None when unknown.
    user: int | None = None

    def __str__(self) -> str:
        """Return the text for people, like `4711 (python3, uid 1000)`."""
        facts = [self.name] if self.name else []
        facts += [] if self.user is None else [f"uid {self.user}"]
        return f"{self.pid} ({', '.join(facts)})" if facts else str(self.pid)


class Processes:
    """Reader of /proc, which reads in its own thread and runs one call at a time."""

    def __init__(self, proc: Path = PROC, *, deadline_s: float = DEADLINE_S) -> None:
        """Store the arguments; read nothing yet.

        Args:
            proc: Folder that `pids_of_pods` reads; `describe` always reads /proc.
            deadline_s: Longest wait for a result of the thread. Unit: seconds.
        """
        self._proc = proc
        self._deadline_s = deadline_s
        self._worker = Worker("processes")
        self._last: asyncio.Future[Any] | None = None

    async def describe(self, pids: Collection[int]) -> Mapping[int, Occupant]:
        """Return the program name and user of each of these processes, by pid.

        The result has every pid. The name is "" and the user None if the agent cannot
        see the process, or if the thread does not answer in time.
        """
        occupants = await self._call(_describe, tuple(pids))
        return {pid: Occupant(pid=pid) for pid in pids} | (occupants or {})

    async def pids_of_pods(
        self, uids: Collection[str]
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the pids of the processes in the cgroups of pods.

        Args:
            uids: UIDs of these pods.

        Returns:
            {pod UID: its 8 lowest pids, ascending}. A pod without processes is left
            out. If the thread does not answer in time, every pod has (), for unknown.
        """
        pids_by_uid = await self._call(_find_pids, self._proc, frozenset(uids))
        return dict.fromkeys(uids, ()) if pids_by_uid is None else pids_by_uid

    async def _call(self, function: Callable[..., T], *args: object) -> T | None:
        """Run a function in the thread and return its result; None after `deadline_s`.

        The thread first finishes the previous call. The time for that counts towards
        `deadline_s`.
        """
        until = clock.loop_s() + self._deadline_s
        if self._last is not None and not await _is_done(self._last, until):
            return None
        call = self._worker.call(function, *args)
        self._last = call
        return call.result() if await _is_done(call, until) else None


async def _is_done(call: "asyncio.Future[T]", until: float) -> bool:
    done, _ = await asyncio.wait({call}, timeout=max(0.0, until - clock.loop_s()))
    return bool(done)


def _describe(pids: tuple[int, ...]) -> dict[int, Occupant]:
    return {occupant.pid: occupant for occupant in map(_occupant, pids)}


def _occupant(pid: int) -> Occupant:
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.uids().real
    except psutil.Error:  # it has ended, or is not visible to the agent
        return Occupant(pid=pid)
    # a program's name can have any bytes
    shown = "".join(c if c.isprintable() else "?" for c in name)
    return Occupant(pid=pid, name=shown[:_NAME_CHARACTERS], user=user)


def _find_pids(proc: Path, uids: frozenset[str]) -> dict[str, tuple[int, ...]]:
    pids_by_uid: dict[str, list[int]] = {}
    for pid, uid in _iterate_groups(proc):
        if uid in uids:
            pids_by_uid.setdefault(uid, []).append(pid)
    return {
        uid: tuple(sorted(pids)[:_MOST_OF_A_POD]) for uid, pids in pids_by_uid.items()
    }


def _iterate_groups(proc: Path) -> Iterator[tuple[int, str]]:
    """Yield (pid, UID of its pod) for each process that belongs to a pod's cgroup."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:  # the process has just ended
            continue
        group = _GROUP.search(text)
        if group is not None:
            yield int(folder.name), group[1].replace("_", "-")
