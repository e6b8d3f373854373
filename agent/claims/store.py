"""The one place where the ledger changes, and how others learn of it.

Latest value wins: a reader that was busy sees the newest ledger, not each one
on the way to it. Everything runs on the one event loop, so `apply` is atomic
and there is no lock.
"""

import asyncio
from collections.abc import Callable

from agent.claims import ledger as ledgers
from agent.claims.events import Effect, Event
from agent.claims.values import Ledger


class Current:
    """Protects the ledger of this node: one value, one version, many readers."""

    def __init__(self, ledger: Ledger, observe: Callable[[Effect], None]) -> None:
        """Begin with a ledger.

        Args:
            ledger: The first value.
            observe: Told each effect once (metrics, events); must not block.
        """
        self.ledger = ledger
        self.version = 0
        self._observe = observe
        self._changed = asyncio.Event()

    def apply(self, event: Event) -> tuple[Effect, ...]:
        """Take in one event and return its effects."""
        ledger, effects = ledgers.step(self.ledger, event)
        self.replace(ledger)
        for effect in effects:
            self._observe(effect)
        return effects

    def replace(self, ledger: Ledger) -> None:
        """Put another ledger in place; wakes all readers if it differs."""
        # compared by value: a pass that finds all as it was would wake everybody
        if ledger is not self.ledger and ledger != self.ledger:
            self.ledger = ledger
            self.wake()

    def wake(self) -> None:
        """Let all readers look again."""
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self, since: int) -> int:
        """Wait until there is something newer than a version; return its own."""
        while self.version == since:
            await self._changed.wait()
        return self.version
