"""Store the ledger of one product line, apply events to it and wake its readers.

A reader is a task that waits in `changed`. A reader that is busy during several changes
sees only the newest ledger. All callers run on one event loop, so `apply` is atomic
without a lock.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from agent.claims import ledger as ledgers
from agent.claims.events import Effect, Event
from agent.claims.values import Ledger


class LedgerStore:
    """The newest ledger of one product line and its version, for many readers."""

    def __init__(
        self,
        ledger: Ledger,
        observe: Callable[[Effect], None],
        *,
        loop_s: Callable[[], float],
    ) -> None:
        """Start with a ledger at version 0.

        Args:
            observe: Called once with each effect; must not block.
            loop_s: Clock of the event loop, which dates each event. Unit: seconds.
        """
        self.ledger = ledger
        self.version = 0
        self._observe = observe
        self._loop_s = loop_s
        self._changed = asyncio.Event()

    def apply(self, event: Event) -> tuple[Effect, ...]:
        """Apply one event to the ledger and return the effects.

        Each effect is also passed to the function `observe` of the constructor.
        """
        ledger, effects = ledgers.step(self.ledger, event, self._loop_s())
        self.replace(ledger)
        for effect in effects:
            self._observe(effect)
        return effects

    def replace(self, ledger: Ledger) -> None:
        """Store a ledger; if it differs from the previous ledger, wake all readers."""
        # compared by value: a pass that changes nothing must not wake every reader
        if ledger is not self.ledger and ledger != self.ledger:
            self.ledger = ledger
            self.wake()

    def wake(self) -> None:
        """Raise the version and wake all readers, even if the ledger is unchanged."""
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, since: int, *, until: float | None = None) -> int:
        """Wait until the ledger's version is not `since`; return the version then.

        Args:
            since: Version that the caller has read.
            until: Loop time at which the wait ends even without a change; None: never.
                Unit: seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self.version == since:
                    await self._changed.wait()
        return self.version
