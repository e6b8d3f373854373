"""Record what the kubelet is asking, and keep the List call of pod-resources apart.

List starts only while no Allocate runs or is expected. A GetPreferredAllocation waits
for a running List, but at most LISTING_WAIT_S. An Allocate that no preference preceded
does not wait: the kubelet has chosen its ids before the call.

List returns the device ids of all containers. During an Allocate, List can lack the
container that is getting devices. A List during an Allocate can even make the kubelet
give one device id to two pods. This holds for Allocates of all resources. So all
product lines of a node share one AllocateActivity.

The kubelet asks for one container after the other, of all resources. A plugin that ends
between two requests fails the pod that the kubelet is about to ask for. So the plugins
of a node end when their AllocateActivity is idle, all together.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

#: How long a GetPreferredAllocation without an Allocate counts as running: the kubelet
#: calls one after the other and does nothing else between. Unit: seconds.
PREFERENCE_LASTS_S = 2.0

#: How long the kubelet takes from an answer to its next question, if it has one: it
#: writes its checkpoint to disk between. Unit: seconds.
NEXT_WITHIN_S = 1.0

#: How long a request waits for the end of a listing. Bounded, because the kubelet
#: admits no other pod meanwhile. Unit: seconds.
LISTING_WAIT_S = 0.25


class AllocateActivity:
    """Record of the kubelet's requests and of the List calls that run now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with no request and no List call running.

        Args:
            clock: Monotonic clock. Unit: seconds.
        """
        self._clock = clock
        #: number of requests that are being answered
        self._answering = 0
        self._answered_at = float("-inf")
        self._preferred_at = float("-inf")
        self._count = 0
        self._listings = 0
        self._all_listed = asyncio.Event()
        self._all_listed.set()

    @property
    def is_quiet(self) -> bool:
        """Whether no request is being answered, and no Allocate is expected now.

        After a GetPreferredAllocation an Allocate is expected for PREFERENCE_LASTS_S.
        The end of an Allocate ends the expectation.
        """
        pending = self._clock() - self._preferred_at < PREFERENCE_LASTS_S
        return not self._answering and not pending

    @property
    def is_idle(self) -> bool:
        """Whether `is_quiet`, and the kubelet would have gone on asking by now."""
        return self.is_quiet and self._clock() - self._answered_at >= NEXT_WITHIN_S

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

    @asynccontextmanager
    async def preferring(self) -> AsyncIterator[None]:
        """Record a GetPreferredAllocation, which begins when no List call runs.

        List is a call of pod-resources. The wait lasts at most LISTING_WAIT_S.
        """
        with self._recording():  # before the wait, so that no other listing begins
            with suppress(TimeoutError):  # the kubelet does not answer the listing
                async with asyncio.timeout(LISTING_WAIT_S):
                    await self._all_listed.wait()
            yield
        self._preferred_at = self._clock()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Record an Allocate as running while the context lasts."""
        try:
            with self._recording():
                yield
        finally:
            self._preferred_at = float("-inf")

    @contextmanager
    def _recording(self) -> Iterator[None]:
        self._count += 1
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1
            self._answered_at = self._clock()

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
