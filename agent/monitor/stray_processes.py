"""Find stray processes: processes without a pod that keep a chip from being free.

The processes of an ended pod stay on its chips for a moment, which is no problem. So
`agent.observe.problems` tells of stray processes only when their chip has been
releasing for a while.
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

from agent.claims import values
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger, Owner
from agent.devices.processes import Occupant, ProcessNames
from agent.devices.reading import Reading
from agent.observe.announcer import Announcer
from agent.observe.problems import Subject
from scheduler_core.node import chips as chip_sets


class StrayProcesses:
    """Monitor of processes without a pod that still use chips of one product line.

    A chip of an ended pod is not free until no such process uses it.
    """

    def __init__(
        self,
        store: LedgerStore,
        *,
        last_reading: Callable[[], Reading],
        names: ProcessNames,
        announcer: Announcer,
    ) -> None:
        self._store = store
        self._last_reading = last_reading
        self._names = names
        self._announcer = announcer
        #: {chip: its processes, empty where they cannot be seen}
        self.occupants: Mapping[int, tuple[Occupant, ...]] = {}

    async def run(self) -> NoReturn:
        """Check the releasing chips now and after each change of the ledger."""
        while True:
            version = self._store.version
            await self.check()
            await self._store.changed(version)

    async def check(self) -> None:
        """Find the processes on releasing chips; tell of them, and of their end."""
        ledger, reading = self._store.ledger, self._last_reading()
        users = {
            chip: reading.pids_of(chip) or _pids_of_ended_pods(ledger, chip)
            for chip in chip_sets.ids_of(values.releasing_chips(ledger))
            # `agent.plugin.foreign` tells of the others
            if chip not in ledger.foreign or _owners(ledger, chip)
        }
        by_pid = {
            occupant.pid: occupant
            for occupants in self.occupants.values()
            for occupant in occupants
        }
        new_pids = {pid for pids in users.values() for pid in pids} - by_pid.keys()
        if new_pids:
            by_pid |= await self._names.describe(new_pids)
        occupants_of = {
            chip: tuple(by_pid[pid] for pid in pids) for chip, pids in users.items()
        }
        if occupants_of == self.occupants:
            return
        before, self.occupants = self.occupants, occupants_of
        self._announcer.chips_releasing(occupants_of, resource=ledger.product.resource)
        for chip in before.keys() | occupants_of.keys():
            occupants = occupants_of.get(chip)
            text = "" if occupants is None else _describe(ledger, chip, occupants)
            self._announcer.problems.tell(Subject.STRAY_PROCESSES, text, of=chip)


def _describe(ledger: Ledger, chip: int, occupants: tuple[Occupant, ...]) -> str:
    """Return a sentence about the processes on a chip that no pod has any more.

    Args:
        occupants: The processes; empty if they cannot be seen.
    """
    pods = [f"{owner.namespace}/{owner.pod}" for owner in _owners(ledger, chip)]
    why = f"pod {pods[-1]} has gone" if pods else "no pod has it"
    names = ", ".join(f"process {occupant}" for occupant in occupants)
    users = names or "a process that cannot be seen from here"
    return (
        f"chip {chip} is not free, though {why}: {users} uses it. It is free as soon "
        "as that has ended"
    )


def _pids_of_ended_pods(ledger: Ledger, chip: int) -> tuple[int, ...]:
    """Return the sorted pids of the processes that a chip's ended pods left behind."""
    uids = {owner.uid for owner in _owners(ledger, chip)}
    pids = {pid for uid in uids for pid in ledger.stray_processes.get(uid, ())}
    return tuple(sorted(pids))


def _owners(ledger: Ledger, chip: int) -> list[Owner]:
    holds = (hold for hold in ledger.holds.values() if hold.mask >> chip & 1)
    return [hold.owner for hold in holds if hold.owner is not None]
