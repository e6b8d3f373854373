"""Keep the journal equal to the holds of the ledgers, and read the journal at start.

Before the agent answers an Allocate, it waits until the new hold is on disk, but at
most WITHIN_S (0.2 s). After that it answers even without a complete write, because the
start of the pod waits for the answer. A failed write is reported and tried again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from agent.claims.store import LedgerStore
from agent.claims.values import Hold
from agent.journal.file import Journal, JournalError, JournalProblem, ProblemKind
from scheduler_core.products.table import Product
from service import clock
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
    """Writer that keeps the journal equal to the holds of all ledgers of this agent.

    It remembers which holds are on disk. A separate thread reads and writes the disk.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        observe_s: Callable[[float], None],
        on_outcome: Callable[[str], None],
    ) -> None:
        """Construct without reading or writing the journal.

        Args:
            observe_s: Called with the duration of each write that succeeds before the
                method `write` stops waiting. Unit: seconds.
            on_outcome: Called after each write with the reason why the newest holds are
                not on disk; "" if they are.
        """
        #: one for each product line, in the order of the journal's entries
        self._stores: list[LedgerStore] = []
        #: entries of product lines that are not served now
        self._unserved: tuple[Hold, ...] = ()
        self._journal = journal
        self._observe_s = observe_s
        self._on_outcome = on_outcome
        # a hanging disk blocks this thread only
        self._worker = Worker("journal")
        self._call: asyncio.Future[None] | None = None
        self._on_disk: tuple[Mapping[int, Hold], ...] = ()

    def follow(self, store: LedgerStore) -> None:
        """Include the holds of one product line's ledger in every write of the journal.

        Call it before the first read or write.
        """
        self._stores.append(store)
        self._on_disk = (*self._on_disk, {})

    def keep(self, entries: Iterable[Hold]) -> None:
        """Set the journal entries of product lines that this agent does not serve now.

        Each later write of the journal includes these entries, besides the holds of the
        ledgers. Each call replaces the entries of the previous call.
        """
        self._unserved = tuple(entries)

    async def read(self) -> tuple[Hold, ...] | JournalProblem:
        """Return the journal entries of the previous agent process, or a problem.

        A problem says why there are no entries. A read that takes longer than
        READ_WITHIN_S (3 s) is a problem, too. An unusable journal is renamed to
        `<name>.bad-<n>`, so that the first write does not replace the only record of
        the holds.

        Call this method once, before any write.
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
            text = f"the disk did not answer within {READ_WITHIN_S:g} s"
            return self._journal.problem(ProblemKind.UNREADABLE, text)

    def entries(self) -> tuple[Hold, ...]:
        """Return the journal entries of the present holds, with those set by `keep`."""
        holds = (hold for store in self._stores for hold in store.ledger.holds.values())
        return *self._unserved, *holds

    async def write(self) -> None:
        """Write the holds of all ledgers to disk, unless the journal already has them.

        The method waits at most WITHIN_S. A write that takes longer goes on in its
        thread. A failed or slow write raises no exception, but is reported to the
        constructor's `on_outcome`.
        """
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._write_newest()
        except TimeoutError:
            self._on_outcome(f"the disk did not answer within {WITHIN_S} s")
        except JournalError as error:
            self._on_outcome(str(error))
        else:
            self._on_outcome("")

    async def _write_newest(self) -> None:
        """Wait until no write is running, then write the present holds of all ledgers.

        Nothing is written if the journal already has these holds.

        Raises:
            JournalError: The disk refused the write.
        """
        while self._call is not None and not self._call.done():
            await asyncio.wait({self._call})
        if self._is_written():
            return
        holds = tuple(store.ledger.holds for store in self._stores)
        started = time.perf_counter()
        self._call = self._worker.call(self._journal.write, self.entries())
        self._call.add_done_callback(_consume_outcome)
        await asyncio.shield(self._call)
        self._on_disk = holds
        self._observe_s(time.perf_counter() - started)

    def _is_written(self) -> bool:
        """Whether the last successful write had the present holds of all ledgers."""
        pairs = zip(self._stores, self._on_disk, strict=True)
        return all(store.ledger.holds is written for store, written in pairs)

    async def close(self) -> None:
        """Let the write under way end, at most WITHIN_S; then it has no effect.

        Without this, a write that hangs could replace the journal of an agent that has
        begun anew in the same process.
        """
        if self._call is not None:
            await asyncio.wait({self._call}, timeout=WITHIN_S)
        self._journal.close()

    async def run(self) -> None:
        """Write the journal after each change of a ledger's holds, until cancelled.

        Allocate itself calls `write` for its new hold. After all other changes, such as
        a released hold, only this method calls `write`. After AGAIN_S a failed write is
        repeated.
        """
        async with asyncio.TaskGroup() as tasks:
            for store in self._stores:
                tasks.create_task(self._keep_up(store))

    async def _keep_up(self, store: LedgerStore) -> NoReturn:
        while True:
            version = store.version
            await self.write()
            again_s = None if self._is_written() else clock.loop_s() + AGAIN_S
            await store.changed(version, until=again_s)


def is_of_line(written: Hold, product: Product) -> bool:
    """Whether a journal entry belongs to a product line.

    An entry with device ids belongs to the line if one of these ids begins with the
    line's prefix, like `Ascend910-`, and is that of a chip, or of a part in a row of
    parts: only the latter have a dash behind the prefix. An entry without device ids
    belongs to the line if a chip in the entry's `chips` or `reserved` is a chip of the
    line.
    """
    if written.kubelet_ids:
        prefix, is_of_parts = product.chip_prefix, product.chip_row is not None
        return any(
            id_.startswith(prefix) and ("-" in id_.removeprefix(prefix)) == is_of_parts
            for id_ in written.kubelet_ids
        )
    return bool(written.mask & product.all_chips)


def _consume_outcome(call: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a finished call, so that asyncio does not log it.

    The call ran in the journal's thread. It can fail after its caller has stopped
    waiting, and then nothing else retrieves the exception.
    """
    if not call.cancelled():
        call.exception()
