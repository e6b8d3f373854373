"""Find in /proc the processes that belong to the cgroups of pods.

Only files that every process may read are used, so no capability is necessary. But a
container sees the host's processes only with `hostPID`; others are left out.

Reading such a file can hang. So threads read, and callers wait at most until a
deadline. A file that hangs costs its thread and hides one process: another thread reads
all others.
"""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from service import clock
from service.worker import Worker

log = logging.getLogger(__name__)

PROC = Path("/proc")
#: A thread that reads no process for so long hangs; a thousand processes take some
#: 20 ms. Unit: seconds.
HANG_S = 0.2
#: Pauses without progress, of `HANG_S` together, after which a thread hangs.
_PAUSES = 4
#: While so many threads hang, nothing is read.
MOST_HUNG = 4
#: Highest number of returned processes of one pod.
_MOST_OF_A_POD = 8
#: Name of a pod's group with both cgroup drivers of the kubelet, whole or as seen from
#: another group: `…/pod<uid>/…`, `…-pod<uid with _>.slice/…`. The uid of a static pod
#: has no dashes. Source: kubelet, pkg/kubelet/config/common.go, applyDefaults.
_GROUP = re.compile(rb"pod([0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPids:
    """Pids of the processes in the cgroups of pods, as far as they could be read."""

    #: {uid in the cgroup's name: its 8 lowest pids, ascending}; pods without any are
    #: left out
    pids: Mapping[str, tuple[int, ...]]
    #: Pids of processes with a cgroup that could not be read; None: any process may be
    #: missing.
    unread: frozenset[int] | None


#: Nothing was read.
_NOTHING = PodPids(pids={}, unread=None)


class Cgroups:
    """Reader of the cgroups of all processes, which remembers files that hang."""

    def __init__(self, proc: Path = PROC, *, hang_s: float = HANG_S) -> None:
        """Store the arguments; read nothing yet.

        Args:
            proc: Folder with a folder for each process.
            hang_s: A thread that reads no process for so long hangs. Unit: seconds.
        """
        self._proc = proc
        self._hang_s = hang_s
        #: looks that were given up before their thread came back
        self._hung: list[_Look] = []

    async def find(self, uids: Collection[str], *, within_s: float) -> PodPids:
        """Return the processes in the cgroups of pods.

        All of them are read after the call began. Several calls may run at a time.

        Args:
            uids: Uids in the names of the cgroups.
            within_s: Longest wait. Unit: seconds.
        """
        until = clock.loop_s() + within_s
        found = _NOTHING
        while (look := self._begin(frozenset(uids))) is not None:
            try:
                is_stuck = await self._follow(look, until)
            finally:  # also of a caller that is cancelled
                if not look.call.done():
                    look.is_given_up = True
                    self._hung.append(look)
            found = look.result()
            if not is_stuck:
                return found
            log.warning(
                "process without a readable cgroup",
                extra={"reason": f"the cgroup of process {look.pid} is not read"},
            )
        return replace(found, unread=None)

    def _begin(self, uids: frozenset[str]) -> "_Look | None":
        """Begin to read all processes but those with files that hang.

        None if too many threads hang.
        """
        self._hung = [look for look in self._hung if not look.call.done()]
        if len(self._hung) >= MOST_HUNG:
            return None
        look = _Look(self._proc, uids, frozenset(look.pid for look in self._hung))
        look.call = Worker("cgroups").call(look.read)
        return look

    async def _follow(self, look: "_Look", until: float) -> bool:
        """Wait for the end of a look, or until a time; return whether it is stuck.

        A look is stuck if its thread has read no process for `hang_s`. Pauses without
        progress are counted, because after a pause of the whole machine the clock alone
        would prove nothing.
        """
        count, idle_count = -1, 0
        while idle_count < _PAUSES and (left_s := until - clock.loop_s()) > 0:
            pause_s = min(self._hang_s / _PAUSES, left_s)
            done, _ = await asyncio.wait({look.call}, timeout=pause_s)
            if done:
                look.call.result()
                return False
            idle_count = idle_count + 1 if look.count == count else 0
            count = look.count
        return idle_count == _PAUSES


class _Look:
    """One reading of the cgroups of all processes, which a thread carries out."""

    #: the thread's call
    call: "asyncio.Future[None]"

    def __init__(
        self, proc: Path, uids: frozenset[str], skipped: frozenset[int]
    ) -> None:
        """Store the arguments; read nothing yet.

        Args:
            proc: Folder with a folder for each process.
            uids: Uids of the pods whose processes are noted.
            skipped: Pids of processes whose files are not opened.
        """
        self._proc = proc
        self._uids = uids
        self._skipped = skipped
        #: process whose file the thread reads; 0 while it lists all
        self.pid = 0
        #: number of processes that it has begun to read
        self.count = 0
        #: tells the thread to end
        self.is_given_up = False
        #: (pid, uid of its pod)
        self._found: list[tuple[int, str]] = []
        self._unread: list[int] = []
        self._is_whole = False

    def read(self) -> None:
        """Read the cgroups of all processes; runs in the thread."""
        try:
            names = [path.name for path in self._proc.iterdir()]
        except OSError:
            return
        for pid in map(int, filter(str.isdecimal, names)):
            if self.is_given_up:
                return
            if pid in self._skipped:
                self._unread.append(pid)
                continue
            self.pid, self.count = pid, self.count + 1
            self._read_one(pid)
        self._is_whole = True

    def _read_one(self, pid: int) -> None:
        try:
            with (self._proc / str(pid) / "cgroup").open("rb", buffering=0) as file:
                text = file.read()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return  # it has just ended, or is not visible to the agent
        except OSError:
            self._unread.append(pid)
            return
        group = _GROUP.search(text)
        uid = group[1].decode().replace("_", "-") if group is not None else ""
        if uid in self._uids:
            self._found.append((pid, uid))

    def result(self) -> PodPids:
        """Return all that has been read so far; the thread may still run."""
        is_whole = self._is_whole
        pids_by_uid: dict[str, list[int]] = {}
        for pid, uid in tuple(self._found):
            pids_by_uid.setdefault(uid, []).append(pid)
        return PodPids(
            pids={
                uid: tuple(sorted(pids)[:_MOST_OF_A_POD])
                for uid, pids in pids_by_uid.items()
            },
            unread=frozenset(self._unread) if is_whole else None,
        )
