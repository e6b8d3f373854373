"""Keep the journal equal to the ledger's holds.

Before Allocate is answered its hold is on disk, but an Allocate never waits
longer than WITHIN_S for that: the pod of the kubelet waits with it. What could
not be written is tried again, and said.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

from agent.claims.values import Hold, Owner
from agent.current import Current
from agent.journal import HoldEntry, Journal, JournalError

log = logging.getLogger(__name__)

WITHIN_S = 0.2
AGAIN_S = 5.0


class Holdbook:
    """Protects which holds are known to be on disk."""

    def __init__(
        self,
        current: Current,
        journal: Journal,
        *,
        boot_id: str,
        observe_s: Callable[[float], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """Write nothing yet.

        Args:
            current: The ledger.
            journal: The file.
            boot_id: Of this boot of the machine; stands in each entry.
            observe_s: Told how long each write took.
            on_failure: Told why a hold is not on disk.
        """
        self._current = current
        self._journal = journal
        self._boot_id = boot_id
        self._observe_s = observe_s
        self._on_failure = on_failure
        # a disk that hangs takes this one thread and nothing else
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._on_disk: Mapping[int, Hold] = {}

    async def write(self) -> None:
        """Put the holds on disk if they are not, or give up in time and say so."""
        holds = self._current.ledger.holds
        if holds is self._on_disk:
            return
        entries = [entry(hold, self._boot_id) for hold in holds.values()]
        call = asyncio.get_running_loop().run_in_executor(
            self._thread, self._journal.write, entries
        )
        started = time.perf_counter()
        try:
            async with asyncio.timeout(WITHIN_S):
                await asyncio.shield(call)
        except TimeoutError:
            self._on_failure(f"the disk did not answer within {WITHIN_S} s")
            call.add_done_callback(_forget_outcome)
        except JournalError as error:
            self._on_failure(str(error))
        else:
            self._on_disk = holds
            self._observe_s(time.perf_counter() - started)

    async def run(self) -> NoReturn:
        """Write what changes outside of Allocate, and what has failed, for ever."""
        while True:
            version = self._current.version
            await self.write()
            failed = self._on_disk is not self._current.ledger.holds
            try:
                async with asyncio.timeout(AGAIN_S if failed else None):
                    await self._current.changed(version)
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
        claim_uid=hold.slot,
        need=hold.need,
        pod_uid=owner.uid,
        namespace=owner.namespace,
        pod=owner.pod,
        container=owner.container,
        boot_id=boot_id,
    )


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
        slot=written.claim_uid,
        need=written.need,
        owner=owner if written.pod_uid else None,
    )


def _forget_outcome(call: "asyncio.Future[None]") -> None:
    """Take note of a late outcome, so that it is not reported as unhandled."""
    if not call.cancelled() and call.exception() is not None:
        log.debug("late journal write failed")
