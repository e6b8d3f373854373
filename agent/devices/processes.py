"""Who is a process, and which processes has a pod left? Asked of the kernel.

Only what the kernel tells everybody is read, so it takes no capability; but a
container sees the host's processes only with the host's numbers (`hostPID`). What is
not seen is said to be unknown, or to be nobody.

A process that hangs in a driver can make whoever asks for its arguments hang as well.
So a thread asks, and nobody waits for it for long.
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
#: A thousand processes take some 20 ms.
DEADLINE_S = 1.0
#: Of a pod's processes, the first are told.
_MOST_OF_A_POD = 8
_NAME_CHARACTERS = 64
#: How both cgroup drivers of the kubelet name a pod's group, whole or as seen from
#: another group: `…/pod<uid>/…`, `…-pod<uid with _>.slice/…`.
_GROUP = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A process on a chip, as far as it is known."""

    pid: int
    #: "" when it cannot be told
    name: str = ""
    #: Number of the user whose it is; None when it cannot be told.
    user: int | None = None

    def __str__(self) -> str:
        """What a person reads: `4711 (python3, uid 1000)`."""
        known = [self.name] if self.name else []
        known += [] if self.user is None else [f"uid {self.user}"]
        return f"{self.pid} ({', '.join(known)})" if known else str(self.pid)


class Processes:
    """Protects the thread that asks, and what it is being asked."""

    def __init__(self, proc: Path = PROC, *, deadline_s: float = DEADLINE_S) -> None:
        """Ask nothing yet.

        Args:
            proc: Where the kernel shows groups of processes.
            deadline_s: How long an answer may take. Unit: seconds.
        """
        self._proc = proc
        self._deadline_s = deadline_s
        self._worker = Worker("processes")
        self._last: asyncio.Future[Any] | None = None

    async def known(self, pids: Collection[int]) -> Mapping[int, Occupant]:
        """Say who these processes are; of those that cannot be told, the number."""
        found = await self._asked(_known, tuple(pids))
        return {pid: Occupant(pid=pid) for pid in pids} | (found or {})

    async def of_pods(self, uids: Collection[str]) -> Mapping[str, tuple[int, ...]]:
        """Find the processes in the groups of these pods.

        Returns:
            {uid: pids, the lowest first}, without pods that have none. When nobody
            answers in time every pod is in it, without pids: it may have some.
        """
        found = await self._asked(_of_pods, self._proc, frozenset(uids))
        return dict.fromkeys(uids, ()) if found is None else found

    async def _asked(self, function: Callable[..., T], *args: object) -> T | None:
        """Have a function called, unless the thread is caught by an earlier one."""
        until = clock.loop_s() + self._deadline_s
        if self._last is not None and not await _done(self._last, until):
            return None
        call = self._worker.call(function, *args)
        self._last = call
        return call.result() if await _done(call, until) else None


async def _done(call: "asyncio.Future[T]", until: float) -> bool:
    done, _ = await asyncio.wait({call}, timeout=max(0.0, until - clock.loop_s()))
    return bool(done)


def _known(pids: tuple[int, ...]) -> dict[int, Occupant]:
    return {occupant.pid: occupant for occupant in map(_occupant, pids)}


def _occupant(pid: int) -> Occupant:
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.uids().real
    except psutil.Error:  # it has gone, or is none that we can see
        return Occupant(pid=pid)
    # whoever runs a program names it, with any bytes
    shown = "".join(c if c.isprintable() else "?" for c in name)
    return Occupant(pid=pid, name=shown[:_NAME_CHARACTERS], user=user)


def _of_pods(proc: Path, uids: frozenset[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for pid, uid in _grouped(proc):
        if uid in uids:
            found.setdefault(uid, []).append(pid)
    return {uid: tuple(sorted(pids)[:_MOST_OF_A_POD]) for uid, pids in found.items()}


def _grouped(proc: Path) -> Iterator[tuple[int, str]]:
    """Yield each process that is in a pod's group, and the pod's uid."""
    for folder in proc.iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            text = (folder / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has just ended
            continue
        group = _GROUP.search(text)
        if group is not None:
            yield int(folder.name), group[1].replace("_", "-")
