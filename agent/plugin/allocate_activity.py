"""Keep Allocate and the listing of pod-resources apart, on one node.

A missing entry in pod-resources proves something only if no Allocate was running.
And a listing during an Allocate can make the kubelet give one id to two pods. Both
concern all resources, so a node has one AllocateActivity.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How long a GetPreferredAllocation without an Allocate counts as running: the kubelet
#: calls one after the other and does nothing else between. Unit: seconds.
PREFERENCE_LASTS_S = 2.0

#: How long a request waits for the end of a listing. Bounded, because the kubelet
#: admits no other pod meanwhile. Unit: seconds.
LISTING_WAIT_S = 0.25


class AllocateActivity:
    """Requests of the kubelet for devices, and listings, that are running now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without any.

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
        """Whether the kubelet is not giving out a device now."""
        pending = self._clock() - self._preferred_at < PREFERENCE_LASTS_S
        return not self._allocating and not pending

    def mark(self) -> int:
        """Return a mark for `was_quiet_since`; -1 while it is not quiet."""
        return self._count if self.is_quiet else -1

    def was_quiet_since(self, mark: int) -> bool:
        """Tell whether no device was given out between a mark and now."""
        return mark == self._count and self.is_quiet

    async def prefer(self) -> None:
        """Note a GetPreferredAllocation, after the end of a running listing."""
        self._note_preference()  # before the wait, so that no other listing begins
        await self._wait_for_listing()
        self._note_preference()

    def _note_preference(self) -> None:
        self._count += 1
        self._preferred_at = self._clock()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Note an Allocate while the context lasts."""
        self._count += 1
        self._allocating += 1
        try:
            yield
        finally:
            self._allocating -= 1
            self._preferred_at = float("-inf")

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Note a listing of pod-resources while the context lasts.

        The caller checks `is_quiet` first.
        """
        self._listings += 1
        self._all_listed.clear()
        try:
            yield
        finally:
            self._listings -= 1
            if not self._listings:
                self._all_listed.set()

    async def _wait_for_listing(self) -> None:
        if self._all_listed.is_set():
            return
        try:
            async with asyncio.timeout(LISTING_WAIT_S):
                await self._all_listed.wait()
        except TimeoutError:
            return  # the kubelet does not answer the listing
