"""Annotate nodes so that schedulers retry refused pods when chips have become free.

A scheduler retries refused pods when it sees a change of the cluster, such as the
deletion of a pod. But at that moment the agent still holds the deleted pod's chips. The
agent publishes the release of the chips in its ConfigMap `mindx-dl-deviceinfo-<node>`,
which schedulers do not watch. All schedulers watch nodes.

So the extender annotates a node that can take more pods than before, if a pod was
refused since the last annotation. The cache has the free chips before the annotation is
written, so the retry finds them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from extender.cache.events import Effect, NodesImproved
from extender.gang import events as gang_events
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
    """Writer of node annotations that make schedulers retry the refused pods.

    State: the names of the nodes to annotate, and whether a refused pod waits for a
    retry.
    """

    def __init__(self, mark: Mark, any_node: Callable[[], str] = str) -> None:
        """Start with no refused pod recorded.

        Args:
            mark: Takes the name of a node, and sets the annotation `ANNOTATION` on the
                node.
            any_node: Returns the name of any node; "" if the cluster has none.
        """
        self._any_node = any_node
        self._mark = mark
        #: nodes to annotate; after a failed write they stay
        self._improved: set[str] = set()
        self._is_pod_waiting = False
        self._woken = asyncio.Event()

    def note_refused(self) -> None:
        """Record that the extender refused a pod, which now waits for a retry."""
        self._is_pod_waiting = True

    def note_improved(self, names: Collection[str]) -> None:
        """Put these nodes on the list of nodes to annotate, if a refused pod waits.

        Args:
            names: Nodes that may take more pods than before.
        """
        if names and self._is_pod_waiting:
            self._improved.update(names)
            self._woken.set()

    def retry_all(self) -> None:
        """Make schedulers retry all refused pods, even if no node has more free chips.

        If a refused pod waits for a retry, any one node is put on the list of nodes to
        annotate.
        """
        if not self._is_pod_waiting:
            return
        name = next(iter(self._improved), None) or self._any_node()
        if name:
            self.note_improved((name,))

    def carry_out(self, effect: Effect) -> None:
        """Wake schedulers for improved nodes or changed jobs; ignore other effects."""
        match effect:
            case NodesImproved(nodes=nodes):
                self.note_improved(nodes)
            case gang_events.WakeScheduler():
                self.retry_all()
            case _:
                pass

    async def run(self) -> NoReturn:
        """Annotate the nodes on the list whenever there are any, until cancelled.

        After a failure, wait for a growing pause, then try again.
        """
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
        """Annotate up to `MARKED_MOST` nodes of the list, and empty the list.

        One annotation makes schedulers retry all refused pods. So no pod counts as
        waiting until the next call of `note_refused`.

        Raises:
            KubeError: A node was not annotated. This node and the following ones stay
                on the list. A refused pod still counts as waiting.
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
