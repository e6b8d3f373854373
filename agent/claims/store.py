"""The owner of a product line's ledger: applies events and wakes the readers.

A busy reader sees the newest ledger only, not each one before it. All callers run on
one event loop, so `apply` is atomic without a lock.
"""

import asyncio
from collections.abc import Callable

from agent.claims import ledger as ledgers
from agent.claims.events import Effect, Event
from agent.claims.values import Ledger


class LedgerStore:
    """The ledger of one product line: one value, its version, many readers."""

    def __init__(self, ledger: Ledger, observe: Callable[[Effect], None]) -> None:
        """Start with a ledger.

        Args:
            ledger: The first value.
            observe: Called once with each effect (metrics, events); must not block.
        """
        self.ledger = ledger
        self.version = 0
        self._observe = observe
        self._changed = asyncio.Event()

    def apply(self, event: Event) -> tuple[Effect, ...]:
        """Apply one event, pass each effect to the observer and return the effects."""
        ledger, effects = ledgers.step(self.ledger, event)
        self.replace(ledger)
        for effect in effects:
            self._observe(effect)
        return effects

    def replace(self, ledger: Ledger) -> None:
        """Replace the ledger; wake all readers if the new one differs."""
        # compared by value: a pass that changes nothing must not wake every reader
        if ledger is not self.ledger and ledger != self.ledger:
            self.ledger = ledger
            self.wake()

    def wake(self) -> None:
        """Raise the version and wake all readers, even with the ledger unchanged."""
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, since: int) -> int:
        """Wait until the version is newer than `since`; return the newer version."""
        while self.version == since:
            await self._changed.wait()
        return self.version
