"""Chips that are not free because of a process: who it is, and who is told.

A process that ends with its pod is seen a moment longer than the pod; only one that
stays is news.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from agent.claims import values
from agent.claims.store import Current
from agent.claims.values import Ledger
from agent.devices.processes import Occupant, Processes
from agent.devices.reading import Reading
from agent.observe.announcer import News
from scheduler_core.node import chips as chip_sets
from service import clock

#: A driver is looked at each second, and the processes of a pod end one by one.
STAYS_S = 3.0


class Leftovers:
    """Protects since when each chip waits for its processes, and what was told."""

    def __init__(
        self,
        current: Current,
        *,
        hardware: Callable[[], Reading],
        processes: Processes,
        news: News,
    ) -> None:
        """Know nothing yet.

        Args:
            current: The ledger, which knows the chips.
            hardware: What the driver last said.
            processes: Who can name them.
            news: Who tells people.
        """
        self._current = current
        self._hardware = hardware
        self.processes = processes
        self._news = news
        self._since: dict[int, float] = {}
        self._told: set[int] = set()
        #: {chip: its processes}; none are named where none can be seen
        self.found: Mapping[int, tuple[Occupant, ...]] = {}

    async def run(self) -> NoReturn:
        """Follow the ledger until cancelled."""
        while True:
            version = self._current.version
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._due_at()):
                    await self._current.changed(version)

    async def look(self) -> None:
        """Take in what the ledger says now."""
        ledger, reading = self._current.ledger, self._hardware()
        now = clock.loop_s()
        users = {
            chip: reading.pids_of(chip) or _left_on(ledger, chip)
            for chip in chip_sets.ids_of(values.releasing(ledger))
        }
        known = {who.pid: who for each in self.found.values() for who in each}
        unknown = {pid for pids in users.values() for pid in pids} - known.keys()
        if unknown:
            known |= await self.processes.known(unknown)
        found = {chip: tuple(known[p] for p in pids) for chip, pids in users.items()}
        if found != self.found:
            self.found = found
            self._news.releasing(found, line=ledger.product.resource)
        for chip in self._since.keys() - found.keys():
            del self._since[chip]
            if chip in self._told:
                self._told.remove(chip)
                self._news.let_go(chip)
        for chip, occupants in found.items():
            stays = self._since.setdefault(chip, now) + STAYS_S <= now + clock.EARLY_S
            if stays and chip not in self._told:
                self._told.add(chip)
                self._news.still_used(chip, _last_owner(ledger, chip), occupants)

    def _due_at(self) -> float | None:
        """When the next chip has waited long enough to be told; None: none waits."""
        waiting = (at for chip, at in self._since.items() if chip not in self._told)
        first = min(waiting, default=None)
        return None if first is None else first + STAYS_S


def _left_on(ledger: Ledger, chip: int) -> tuple[int, ...]:
    """The processes that pods which have gone have left, and that may use a chip."""
    found = {
        pid
        for hold in ledger.holds.values()
        if hold.owner is not None and chip in chip_sets.ids_of(hold.mask)
        for pid in ledger.left.get(hold.owner.uid, ())
    }
    return tuple(sorted(found))


def _last_owner(ledger: Ledger, chip: int) -> str:
    """The pod that had a chip, as `namespace/pod`; "" when nobody is known."""
    owners = [
        f"{hold.owner.namespace}/{hold.owner.pod}"
        for hold in ledger.holds.values()
        if hold.owner is not None and chip in chip_sets.ids_of(hold.mask)
    ]
    return owners[-1] if owners else ""
