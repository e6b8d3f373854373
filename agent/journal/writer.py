"""Keep the journal equal to the holds of the ledgers, and read it at the start.

A hold is on disk before Allocate is answered. But an Allocate waits for that at most
WITHIN_S, because the kubelet's pod waits with it. A failed write is logged and tried
again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from agent.claims.store import LedgerStore
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

#: Longest wait of an Allocate for a write. Unit: seconds.
WITHIN_S = 0.2
#: Pause before a failed write is tried again. Unit: seconds.
AGAIN_S = 5.0
#: Longest wait for the read at the start. Unit: seconds. No Allocate waits then, but
#: the node has no plugin until then. Longer than for a write, because without a journal
#: it is not certain which pod has which chips.
READ_WITHIN_S = 3.0


class JournalWriter:
    """The holds that are known to be on disk, and the thread that writes them."""

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
            boot_id: Id of this boot of the machine, for each entry.
            observe_s: Called with the duration of each write. Unit: seconds.
            on_failure: Called with the reason why a hold is not on disk.
        """
        #: one for each product line, in the order of the journal's entries
        self._stores: list[LedgerStore] = []
        #: entries of product lines that are not served now
        self._unserved: tuple[HoldEntry, ...] = ()
        self._journal = journal
        self._boot_id = boot_id
        self._observe_s = observe_s
        self._on_failure = on_failure
        # a hanging disk blocks this thread only
        self._worker = Worker("journal")
        self._call: asyncio.Future[None] | None = None
        self._on_disk: tuple[Mapping[int, Hold], ...] = ()

    def follow(self, store: LedgerStore) -> None:
        """Write the holds of this ledger too; call it before any read or write."""
        self._stores.append(store)
        self._on_disk = (*self._on_disk, {})

    def keep(self, entries: Iterable[HoldEntry]) -> None:
        """Preserve entries in the journal that no ledger of this agent has."""
        self._unserved = tuple(entries)

    async def read(self) -> JournalContents | JournalProblem:
        """Read what the last agent wrote, or give up after READ_WITHIN_S.

        Call it once, before any write. A journal that was not read in time is set aside
        as soon as the disk answers, before the first write: it is the only record of
        the holds.
        """
        call = self._worker.call(self._journal.read)
        call.add_done_callback(_consume_outcome)
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                return await asyncio.shield(call)
        except TimeoutError:
            self._worker.call(self._journal.set_aside).add_done_callback(
                _consume_outcome
            )
            return self._journal.not_read(
                f"the disk did not answer within {READ_WITHIN_S:g} s"
            )

    async def write(self) -> None:
        """Write the holds to disk if they differ; report a failure or a time-out."""
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._write_newest()
        except TimeoutError:
            self._on_failure(f"the disk did not answer within {WITHIN_S} s")
        except JournalError as error:
            self._on_failure(str(error))

    async def _write_newest(self) -> None:
        """Write the present holds, after any other write has ended."""
        while self._call is not None and not self._call.done():
            await asyncio.wait({self._call})
        if self._is_written():
            return
        holds = tuple(store.ledger.holds for store in self._stores)
        entries = [
            *self._unserved,
            *(
                make_entry(hold, self._boot_id)
                for holds_of_line in holds
                for hold in holds_of_line.values()
            ),
        ]
        started = time.perf_counter()
        self._call = self._worker.call(self._journal.write, entries)
        self._call.add_done_callback(_consume_outcome)
        await asyncio.shield(self._call)
        self._on_disk = holds
        self._observe_s(time.perf_counter() - started)

    def _is_written(self) -> bool:
        """Tell whether the holds on disk are those of the ledgers."""
        pairs = zip(self._stores, self._on_disk, strict=True)
        return all(store.ledger.holds is written for store, written in pairs)

    async def run(self) -> None:
        """Write changes made outside of Allocate, and retry failed writes, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for store in self._stores:
                tasks.create_task(self._keep_up(store))

    async def _keep_up(self, store: LedgerStore) -> NoReturn:
        while True:
            version = store.version
            await self.write()
            try:
                async with asyncio.timeout(None if self._is_written() else AGAIN_S):
                    await store.changed(version)
            except TimeoutError:
                continue


def make_entry(hold: Hold, boot_id: str) -> HoldEntry:
    """Return the journal entry of a hold."""
    owner = hold.owner or Owner(uid="", namespace="", pod="", container="")
    return HoldEntry(
        sequence=hold.sequence,
        kubelet_ids=hold.kubelet_ids,
        chips=hold.chips,
        reserved=hold.reserved,
        lost=hold.lost,
        anew=hold.recreated,
        claim_uid=hold.slot,
        need=hold.need,
        pod_uid=owner.uid,
        namespace=owner.namespace,
        pod=owner.pod,
        container=owner.container,
        boot_id=boot_id,
    )


def is_of_line(written: HoldEntry, product: Product) -> bool:
    """Tell whether an entry is of a product line: by its ids, else by its chips.

    A hold can have no id left while some of its reserved chips are still in use.
    """
    if written.kubelet_ids:
        return any(id_.startswith(product.chip_prefix) for id_ in written.kubelet_ids)
    chips = chip_sets.mask_of((*written.chips, *written.reserved))
    return bool(chips & product.all_chips)


def restore_hold(written: HoldEntry) -> Hold:
    """Return the hold of a journal entry."""
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
        recreated=written.anew,
        slot=written.claim_uid,
        need=written.need,
        owner=owner if written.pod_uid else None,
    )


def _consume_outcome(call: asyncio.Future[Any]) -> None:
    """Retrieve the outcome of a call without a waiter, so asyncio logs no error.

    `run` repeats a failed write.
    """
    if not call.cancelled():
        call.exception()
