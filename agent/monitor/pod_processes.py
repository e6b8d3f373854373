"""Find the processes that the ended pods of one product line have left behind.

The cgroup of a process tells its pod. If it cannot be read, the process may be of any
pod that had chips when the process ran already. If the driver sees the process on
chips, it is of a pod with one of these chips. All other pods can be judged without it.
"""

from collections.abc import Callable, Mapping

from agent.claims import values
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger
from agent.devices.cgroups import Cgroups
from agent.devices.reading import Reading
from scheduler_core.node import chips as chip_sets

#: Longest wait of an Allocate. Unit: seconds.
DEADLINE_S = 1.0
#: Longest wait where no pod waits: a busy node with very many processes takes longer
#: than an Allocate may. Unit: seconds.
PATIENT_S = 10.0


class PodProcesses:
    """Finder of processes of one product line's ended pods."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        last_reading: Callable[[], Reading],
        cgroups: Cgroups,
    ) -> None:
        self._store = store
        self._last_reading = last_reading
        self._cgroups = cgroups
        #: {pid of a process with an unread cgroup: sequence of the newest hold when
        #: it was found to run}
        self._unread: Mapping[int, int] = {}

    async def find(
        self, uids: frozenset[str], *, within_s: float = DEADLINE_S
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the pids of the processes that ended pods have left behind.

        Args:
            uids: Uids of these pods.
            within_s: Longest wait. Unit: seconds.

        Returns:
            {pod uid: its 8 lowest pids, ascending}; () if a process may be of this pod
            and its cgroup cannot be read. A pod without processes is left out.
        """
        cgroup_uids = {uid: _cgroup_uid(self._store.ledger, uid) for uid in uids}
        found = await self._cgroups.find(cgroup_uids.values(), within_s=within_s)
        ledger = self._store.ledger
        suspects = uids
        if found.unread is not None:
            self._unread = {
                pid: self._unread.get(pid, ledger.sequence) for pid in found.unread
            }
            suspects = frozenset(u for u in uids if self._may_have_unread(ledger, u))
        return {
            uid: found.pids.get(cgroup_uid, ())
            for uid, cgroup_uid in cgroup_uids.items()
            if uid in suspects or cgroup_uid in found.pids
        }

    def _may_have_unread(self, ledger: Ledger, uid: str) -> bool:
        """Whether a process with an unread cgroup may be of this pod."""
        holds = values.holds_of_pod(ledger, uid)
        seen = self._last_reading().processes
        for pid, sequence in self._unread.items():
            chips = chip_sets.mask_of({used.chip for used in seen if used.pid == pid})
            for hold in holds:
                # a process does not begin before its pod has its chips
                is_newer = hold.sequence > sequence and not hold.recreated
                if not is_newer and (hold.mask & chips or not chips):
                    return True
        return False


def _cgroup_uid(ledger: Ledger, uid: str) -> str:
    """Return the uid in the name of an ended pod's cgroup."""
    owners = (hold.owner for hold in values.holds_of_pod(ledger, uid))
    return next((owner.cgroup_uid for owner in owners if owner), "") or uid
