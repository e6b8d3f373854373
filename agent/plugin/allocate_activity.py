"""Keep Allocate and the listing of pod-resources apart, on one node.

A container missing in pod-resources has no devices only if no Allocate was running. And
a listing during an Allocate can make the kubelet give one id to two pods. Both facts
concern all resources, so all product lines of a node share one AllocateActivity.
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
    """Record of the kubelet's device requests and the listings that run now.

    The device requests are GetPreferredAllocation and Allocate. The listings are those
    of pod-resources.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with no request and no listing running.

        Args:
            clock: Monotonic clock. Unit: seconds.
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
        """Whether no Allocate runs, and none is due after a GetPreferredAllocation.

        An Allocate is due until PREFERENCE_LASTS_S after a GetPreferredAllocation.
        """
        pending = self._clock() - self._preferred_at < PREFERENCE_LASTS_S
        return not self._allocating and not pending

    def mark(self) -> int:
        """Return a mark of this moment for `was_quiet_since`, or -1 if it is not quiet.

        `was_quiet_since(-1)` is always false.
        """
        return self._count if self.is_quiet else -1

    def was_quiet_since(self, mark: int) -> bool:
        """Whether no GetPreferredAllocation or Allocate has run since `mark` was taken.

        `mark` is a result of the method `mark`.
        """
        return mark == self._count and self.is_quiet

    async def prefer(self) -> None:
        """Record a GetPreferredAllocation, and wait until no listing runs.

        The listings are those of pod-resources. The wait lasts at most LISTING_WAIT_S.
        """
        self._note_preference()  # before the wait, so that no other listing begins
        await self._wait_for_listing()
        self._note_preference()

    def _note_preference(self) -> None:
        self._count += 1
        self._preferred_at = self._clock()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Record an Allocate as running while the context lasts."""
        self._count += 1
        self._allocating += 1
        try:
            yield
        finally:
            self._allocating -= 1
            self._preferred_at = float("-inf")

    @contextmanager
    def listing(self) -> Iterator[None]:
        """Record a listing of pod-resources as running while the context lasts.

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
