"""Keep the pod-resources List call apart from the Allocates of one node.

List starts only while no Allocate runs or is expected. A GetPreferredAllocation waits
for a running List, but at most LISTING_WAIT_S. An Allocate that no preference preceded
does not wait: the kubelet has chosen its ids before the call.

List returns the device ids of all containers. During an Allocate, List can lack the
container that is getting devices. A List during an Allocate can even make the kubelet
give one device id to two pods. This holds for Allocates of all resources. So all
product lines of a node share one AllocateActivity.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

#: How long a GetPreferredAllocation without an Allocate counts as running: the kubelet
#: calls one after the other and does nothing else between. Unit: seconds.
PREFERENCE_LASTS_S = 2.0

#: How long a request waits for the end of a listing. Bounded, because the kubelet
#: admits no other pod meanwhile. Unit: seconds.
LISTING_WAIT_S = 0.25


class AllocateActivity:
    """Record of the Allocate calls and pod-resources List calls that run now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with no Allocate and no List call running.

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
        """Whether no Allocate runs, and none is expected now.

        After a GetPreferredAllocation an Allocate is expected for PREFERENCE_LASTS_S.
        The end of an Allocate ends the expectation.
        """
        pending = self._clock() - self._preferred_at < PREFERENCE_LASTS_S
        return not self._allocating and not pending

    def mark(self) -> int:
        """Return a number for this moment, to pass to `was_quiet_since` later.

        The number is -1 if `is_quiet` is false.
        """
        return self._count if self.is_quiet else -1

    def was_quiet_since(self, mark: int) -> bool:
        """Whether no GetPreferredAllocation or Allocate has come since a given moment.

        Args:
            mark: Number that the method `mark` returned at that moment; -1 makes the
                result false.
        """
        return mark == self._count and self.is_quiet

    async def prefer(self) -> None:
        """Record a GetPreferredAllocation, then wait until no List call runs.

        List is a call of pod-resources. The wait lasts at most LISTING_WAIT_S.
        """
        self._note_preference()  # before the wait, so that no other listing begins
        with suppress(TimeoutError):  # the kubelet does not answer the listing
            async with asyncio.timeout(LISTING_WAIT_S):
                await self._all_listed.wait()
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
        """Record a pod-resources List call as running while the context lasts.

        The caller first checks that `is_quiet` is true.
        """
        self._listings += 1
        self._all_listed.clear()
        try:
            yield
        finally:
            self._listings -= 1
            if not self._listings:
                self._all_listed.set()
