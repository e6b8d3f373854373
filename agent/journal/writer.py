"""Keep the journal equal to the ledgers' holds, and read it at the start.

Before Allocate is answered its hold is on disk, but an Allocate never waits
longer than WITHIN_S for that: the pod of the kubelet waits with it. What could
not be written is tried again, and said.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from agent.claims.store import Current
from agent.claims.values import Hold, Owner
from agent.journal.file import (
    HoldEntry,
    Journal,
    JournalContents,
    JournalError,
    JournalProblem,
)
from scheduler_core.node import chips as chip_sets
from scheduler_core.products.table import Product
from service.worker import Worker

WITHIN_S = 0.2
AGAIN_S = 5.0
#: At the start no Allocate waits, but the node has no plugin until then; and without
#: a journal it is not certain which pod has which chips. So longer than for a write.
READ_WITHIN_S = 3.0


class Holdbook:
    """Protects which holds are known to be on disk."""

    def __init__(
        self,
        journal: Journal,
        *,
        boot_id: str,
        observe_s: Callable[[float], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Write nothing yet.

        Args:
            journal: The file.
            boot_id: Of this boot of the machine; stands in each entry.
            observe_s: Told how long each write took.
            on_failure: Told why a hold is not on disk.
        """
        #: one for each product line, in the order in which the journal has them
        self._currents: list[Current] = []
        #: of product lines that are not served now
        self._kept: tuple[HoldEntry, ...] = ()
        self._journal = journal
        self._boot_id = boot_id
        self._observe_s = observe_s
        self._on_failure = on_failure
        # a disk that hangs takes this one thread and nothing else
        self._worker = Worker("journal")
        self._call: asyncio.Future[None] | None = None
        self._on_disk: tuple[Mapping[int, Hold], ...] = ()

    def follow(self, current: Current) -> None:
        """Keep the holds of this ledger too; before anything is read or written."""
        self._currents.append(current)
        self._on_disk = (*self._on_disk, {})

    def keep(self, entries: Iterable[HoldEntry]) -> None:
        """Have entries stay in the journal that no ledger of ours has."""
        self._kept = tuple(entries)

    async def read(self) -> JournalContents | JournalProblem:
        """Read what the last agent wrote, or give up in time.

        Called once, before any write. A journal that was not read in time is set
        aside as soon as the disk answers, before the first write: it is the only
        witness of who holds what.
        """
        call = self._worker.call(self._journal.read)
        call.add_done_callback(_take_note)
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                return await asyncio.shield(call)
        except TimeoutError:
            self._worker.call(self._journal.set_aside).add_done_callback(_take_note)
            return self._journal.not_read(
                f"the disk did not answer within {READ_WITHIN_S:g} s"
            )

    async def write(self) -> None:
        """Put the holds on disk if they are not, or give up in time and say so."""
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._write_newest()
        except TimeoutError:
            self._on_failure(f"the disk did not answer within {WITHIN_S} s")
        except JournalError as error:
            self._on_failure(str(error))

    async def _write_newest(self) -> None:
        """Write the holds as they are once no other write is under way."""
        while self._call is not None and not self._call.done():
            await asyncio.wait({self._call})
        if self._is_written():
            return
        holds = tuple(current.ledger.holds for current in self._currents)
        entries = [
            *self._kept,
            *(entry(hold, self._boot_id) for each in holds for hold in each.values()),
        ]
        started = time.perf_counter()
        self._call = self._worker.call(self._journal.write, entries)
        self._call.add_done_callback(_take_note)
        await asyncio.shield(self._call)
        self._on_disk = holds
        self._observe_s(time.perf_counter() - started)

    def _is_written(self) -> bool:
        """Tell whether the holds on disk are those of the ledgers."""
        pairs = zip(self._currents, self._on_disk, strict=True)
        return all(current.ledger.holds is written for current, written in pairs)

    async def run(self) -> None:
        """Write what changes outside of Allocate, and what has failed, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for current in self._currents:
                tasks.create_task(self._keep_up(current))

    async def _keep_up(self, current: Current) -> NoReturn:
        while True:
            version = current.version
            await self.write()
            try:
                async with asyncio.timeout(None if self._is_written() else AGAIN_S):
                    await current.changed(version)
            except TimeoutError:
                continue


def entry(hold: Hold, boot_id: str) -> HoldEntry:
    """Render a hold for the journal."""
    owner = hold.owner or Owner(uid="", namespace="", pod="", container="")
    return HoldEntry(
        sequence=hold.sequence,
        kubelet_ids=hold.kubelet_ids,
        chips=hold.chips,
        reserved=hold.reserved,
        lost=hold.lost,
        anew=hold.anew,
        claim_uid=hold.slot,
        need=hold.need,
        pod_uid=owner.uid,
        namespace=owner.namespace,
        pod=owner.pod,
        container=owner.container,
        boot_id=boot_id,
    )


def is_of(written: HoldEntry, product: Product) -> bool:
    """Tell whether a hold is of a product line: by its ids, or else by its chips.

    No id is left of one of whose chips only some that are reserved are still in use.
    """
    if written.kubelet_ids:
        return any(id_.startswith(product.chip_prefix) for id_ in written.kubelet_ids)
    chips = chip_sets.mask_of((*written.chips, *written.reserved))
    return bool(chips & product.all_chips)


def hold(written: HoldEntry) -> Hold:
    """Read a hold back."""
    owner = Owner(
        uid=written.pod_uid,
        namespace=written.namespace,
        pod=written.pod,
        container=written.container,
    )
    return Hold(
        sequence=written.sequence,
        kubelet_ids=written.kubelet_ids,
        chips=written.chips,
        reserved=written.reserved,
        lost=written.lost,
        anew=written.anew,
        slot=written.claim_uid,
        need=written.need,
        owner=owner if written.pod_uid else None,
    )


def _take_note(call: asyncio.Future[Any]) -> None:
    """Look at an outcome that nobody may wait for any more.

    What was not written is written again by `run`.
    """
    if not call.cancelled():
        call.exception()
