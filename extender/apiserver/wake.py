"""Make the scheduler try again when something that it cannot see has become free.

A pod that was refused is tried again when the scheduler sees the cluster change. It
sees a pod being deleted, but at that moment its chips are still held; that the agent
released them stands in a ConfigMap, which no scheduler watches, and that a claim was
confirmed in an annotation of a pod that it has already placed. So when a node offers
more than it did and pods were refused since the last time, the node gets an
annotation: a change that every scheduler sees, and that comes after we have seen it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from kube.errors import KubeError, NotFoundError
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: When the node last offered more than before, while pods waited. Unix nanoseconds.
ANNOTATION = "ascend-affinity/more-free-at"
#: What becomes free within it wakes the scheduler once. Unit: seconds.
TOGETHER_S = 0.1
#: Nodes that are marked for one wake. One is enough to have all pods tried; a few
#: more help schedulers that look at the node first.
MARKED_MOST = 8

#: Marks one node; raises KubeError.
Mark = Callable[[str], Awaitable[None]]


class Waker:
    """Protects which nodes have become better, and whether a pod waits."""

    def __init__(self, mark: Mark, any_node: Callable[[], str] = str) -> None:
        """Know of nobody who waits.

        Args:
            mark: sets the annotation on a node.
            any_node: names one that the scheduler sees; "" is none.
        """
        self._any = any_node
        self._mark = mark
        self._better: set[str] = set()
        self._is_awaited = False
        self._woken = asyncio.Event()

    def refused(self) -> None:
        """Note that a pod found no node."""
        self._is_awaited = True

    def better(self, names: Collection[str]) -> None:
        """Note that these nodes offer more than before."""
        if names and self._is_awaited:
            self._better.update(names)
            self._woken.set()

    def again(self) -> None:
        """Have pods that found no node tried again, though no node is better."""
        some = next(iter(self._better), None) or self._any()
        if some:
            self.better((some,))

    async def run(self) -> NoReturn:
        """Wake the scheduler whenever it is worth it, until cancelled."""
        backoff = Backoff()
        while True:
            await self._woken.wait()
            await asyncio.sleep(TOGETHER_S)
            try:
                await self.run_once()
            except KubeError as error:
                pause_s = backoff.next_s(error.retry_after_s)
                log.warning(
                    "scheduler not woken yet",
                    extra={"reason": str(error), "retry_in_s": round(pause_s, 2)},
                )
                await asyncio.sleep(pause_s)
            else:
                backoff.reset()

    async def run_once(self) -> None:
        """Mark the nodes that have become better.

        Raises:
            KubeError: some were not marked; they are still to be.
        """
        self._woken.clear()
        self._is_awaited = False
        names = sorted(self._better)
        self._better.clear()
        for position, name in enumerate(names[:MARKED_MOST]):
            try:
                await self._mark(name)
            except NotFoundError:
                continue
            except KubeError:
                self._is_awaited = True
                self.better(names[position:])
                raise
