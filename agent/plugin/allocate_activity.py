"""Is the kubelet in the middle of giving out devices?

What pod-resources does not show proves something only when no Allocate was
under way; and listing pod-resources while one is makes the kubelet hand one
id to two pods. So both sides keep out of each other's way through this: one for a
node, whichever resource is given out.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How long a preference that no Allocate has followed counts as under way:
#: the kubelet goes from one to the other without doing anything else.
PREFERENCE_LASTS_S = 2.0

#: How long a request waits for a listing that is under way. Bounded, because
#: the kubelet admits no other pod meanwhile.
LISTING_WAIT_S = 0.25


class Traffic:
    """Protects the count of requests under way and of listings, if any."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin quiet.

        Args:
            clock: Monotonic. Unit: seconds.
        """
        self._clock = clock
        self._allocating = 0
        self._preferred_at = float("-inf")
        self._count = 0
        self._listings = 0
        self._all_listed = asyncio.Event()
        self._all_listed.set()

    @property
    def is_quiet(self) -> bool:
        """Whether no device is being given out now."""
        pending = self._clock() - self._preferred_at < PREFERENCE_LASTS_S
        return not self._allocating and not pending

    def mark(self) -> int:
        """Return a mark for `was_quiet_since`; -1 while it is not quiet."""
        return self._count if self.is_quiet else -1

    def was_quiet_since(self, mark: int) -> bool:
        """Tell whether nothing was given out between a mark and now."""
        return mark == self._count and self.is_quiet

    async def prefer(self) -> None:
        """Note that the kubelet has asked for a preference."""
        self._note_preference()  # first: no listing begins that is not waited for
        await self._let_listing_end()
        self._note_preference()

    def _note_preference(self) -> None:
        self._count += 1
        self._preferred_at = self._clock()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Note an Allocate, from its arrival to its answer."""
        self._count += 1
        self._allocating += 1
        try:
            yield
        finally:
            self._allocating -= 1
            self._preferred_at = float("-inf")

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Note a listing of pod-resources; begin one only when it is quiet."""
        self._listings += 1
        self._all_listed.clear()
        try:
            yield
        finally:
            self._listings -= 1
            if not self._listings:
                self._all_listed.set()

    async def _let_listing_end(self) -> None:
        if self._all_listed.is_set():
            return
        try:
            async with asyncio.timeout(LISTING_WAIT_S):
                await self._all_listed.wait()
        except TimeoutError:
            return  # the kubelet does not answer it; it can wait no longer
