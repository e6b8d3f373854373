"""Annotation on nodes that makes schedulers retry pods when chips have become free.

A scheduler retries a refused pod when it sees a change of the cluster. It sees that a
pod is deleted, but at that moment the agent still holds the chips. It does not see the
release, which is in a ConfigMap that no scheduler watches. Nor does it see that a claim
is confirmed, in an annotation of a pod already placed. So a node that offers more gets
an annotation, if pods were refused since the last one. Every scheduler sees this
change, and only after our cache has the free chips.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from kube.errors import KubeError, NotFoundError
from service.backoff import Backoff

log = logging.getLogger(__name__)

#: Key; value: time at which the node offered more while pods waited, Unix nanoseconds.
ANNOTATION = "ascend-affinity/more-free-at"
#: Nodes that improve within this time wake the scheduler once. Unit: seconds.
TOGETHER_S = 0.1
#: Most nodes annotated for one wake. One makes schedulers retry all pods; a few more
#: help schedulers that check the changed node first.
MARKED_MOST = 8

#: Sets the annotation on the node of this name; raises KubeError.
Mark = Callable[[str], Awaitable[None]]


class SchedulerWaker:
    """Owner of the improved nodes to annotate, and of whether a pod waits for one."""

    def __init__(self, mark: Mark, any_node: Callable[[], str] = str) -> None:
        """Start without a waiting pod.

        Args:
            mark: sets the annotation on a node.
            any_node: returns the name of some node of the cluster; "" if it has none.
        """
        self._any_node = any_node
        self._mark = mark
        self._improved: set[str] = set()
        self._is_pod_waiting = False
        self._woken = asyncio.Event()

    def note_refused(self) -> None:
        """Remember that a pod was refused and waits."""
        self._is_pod_waiting = True

    def note_improved(self, names: Collection[str]) -> None:
        """Schedule a wake for nodes that offer more than before, if a pod waits."""
        if names and self._is_pod_waiting:
            self._improved.update(names)
            self._woken.set()

    def retry_all(self) -> None:
        """Schedule a wake although no node has improved, if a pod waits."""
        name = next(iter(self._improved), None) or self._any_node()
        if name:
            self.note_improved((name,))

    async def run(self) -> NoReturn:
        """Annotate improved nodes while pods wait, until cancelled."""
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
        """Annotate the improved nodes.

        Raises:
            KubeError: a node was not annotated; it stays in the queue, as those after.
        """
        self._woken.clear()
        self._is_pod_waiting = False
        names = sorted(self._improved)
        self._improved.clear()
        for position, name in enumerate(names[:MARKED_MOST]):
            try:
                await self._mark(name)
            except NotFoundError:
                continue
            except KubeError:
                self._is_pod_waiting = True
                self.note_improved(names[position:])
                raise
