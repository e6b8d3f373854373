"""Find stray processes: processes without a pod that keep a chip from being free.

The processes of an ended pod stay on its chips for a moment, which is no problem. So
stray processes are announced, by event and log, only when their chip has been releasing
for STAYS_S (3 s).
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

from agent.claims import values
from agent.claims.store import LedgerStore
from agent.claims.values import Ledger, Owner
from agent.devices.processes import Occupant, ProcessNames
from agent.devices.reading import Reading
from agent.observe.announcer import Announcer
from scheduler_core.node import chips as chip_sets
from service import clock

#: The driver is read each second, and the processes of a pod end one by one.
#: Unit: seconds.
STAYS_S = 3.0


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
        #: {chip: loop time in seconds since which it waits for its processes}
        self._since: dict[int, float] = {}
        #: chips whose processes were announced
        self._announced: set[int] = set()
        #: {chip: its processes, empty where they cannot be seen}
        self.occupants: Mapping[int, tuple[Occupant, ...]] = {}

    async def run(self) -> NoReturn:
        """Check the releasing chips after each change of the ledger, until cancelled.

        They are also checked when a chip has been releasing for STAYS_S.
        """
        while True:
            version = self._store.version
            await self.check()
            await self._store.changed(version, until=self._due_at())

    async def check(self) -> None:
        """Find the processes on releasing chips; announce the chips that stay in use.

        A chip is announced when it has been releasing for STAYS_S. A second
        announcement follows when the chip is not releasing any more.
        """
        ledger, reading = self._store.ledger, self._last_reading()
        now = clock.loop_s()
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
        if occupants_of != self.occupants:
            self.occupants = occupants_of
            self._announcer.chips_releasing(
                occupants_of, resource=ledger.product.resource
            )
        for chip in self._since.keys() - occupants_of.keys():
            del self._since[chip]
            if chip in self._announced:
                self._announced.remove(chip)
                self._announcer.chip_no_longer_used(chip)
        for chip, occupants in occupants_of.items():
            stays = self._since.setdefault(chip, now) + STAYS_S <= now + clock.EARLY_S
            if stays and chip not in self._announced:
                self._announced.add(chip)
                self._announcer.chip_still_used(
                    chip, _last_owner(ledger, chip), occupants
                )

    def _due_at(self) -> float | None:
        """Return the loop time at which the next announcement about a chip is due.

        None if no chip waits for an announcement. Unit: seconds.
        """
        waiting = (
            since for chip, since in self._since.items() if chip not in self._announced
        )
        first = min(waiting, default=None)
        return None if first is None else first + STAYS_S


def _pids_of_ended_pods(ledger: Ledger, chip: int) -> tuple[int, ...]:
    """Return the sorted pids of the processes that a chip's ended pods left behind."""
    uids = {owner.uid for owner in _owners(ledger, chip)}
    pids = {pid for uid in uids for pid in ledger.stray_processes.get(uid, ())}
    return tuple(sorted(pids))


def _last_owner(ledger: Ledger, chip: int) -> str:
    """Return the newest known owner of a hold on a chip, as `namespace/pod`, or ""."""
    names = [f"{owner.namespace}/{owner.pod}" for owner in _owners(ledger, chip)]
    return names[-1] if names else ""


def _owners(ledger: Ledger, chip: int) -> list[Owner]:
    holds = (hold for hold in ledger.holds.values() if hold.mask >> chip & 1)
    return [hold.owner for hold in holds if hold.owner is not None]
