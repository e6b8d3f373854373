"""Writes and removes the claims of pods that Volcano has allocated and not yet bound.

Volcano binds right after it has allocated the last pod of a job. So the claim must be
on the pod before the extender answers Volcano's request allocateFunc. If Volcano
deallocates the pod, its claim must be removed. Otherwise an agent could later take the
claim as valid.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kube.errors import KubeError
from kube.pods import has_gone
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)


#: Patches annotations of a pod if its UID is still that of the `NpuPod`. The mapping is
#: {key: value}; a value of None removes the annotation.
Annotate = Callable[[NpuPod, Mapping[str, str | None]], Awaitable[object]]


@dataclass(slots=True)
class _Mark:
    """A claim that may be on a pod, and the keys of its annotations."""

    pod: NpuPod
    #: annotation keys written here, or whose write failed
    keys: set[str] = field(default_factory=set)
    #: False: the annotations are being removed
    is_wanted: bool = True
    #: orders writes by the time of their requests
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ClaimWriter:
    """Writes claims on pods that Volcano allocates; removes them after deallocation.

    Writes to the same pod are sent one at a time, in the order of the calls.
    """

    def __init__(self, annotate: Annotate) -> None:
        self._annotate = annotate
        #: {uid: annotations that may be on the pod}
        self._marks: dict[str, _Mark] = {}
        #: removals in progress; a failed one is tried again each second
        self._tasks: set[asyncio.Task[None]] = set()

    def record_existing(self, pod: NpuPod, keys: set[str]) -> None:
        """Record a claim that an earlier process of the extender wrote on a pod.

        Args:
            pod: The pod with the claim.
            keys: Keys of the claim's annotations.
        """
        self._marks[pod.uid] = _Mark(pod, keys)

    async def put(self, pod: NpuPod, annotations: Mapping[str, str]) -> None:
        """Write a claim onto a pod, in place of an earlier claim.

        Annotations of the earlier claim are removed if the new claim lacks their keys.

        Args:
            pod: The pod to annotate.
            annotations: {key: value} of the claim.

        Raises:
            KubeError: The claim may or may not be on the pod. The caller must call
                `remove`.
        """
        mark = self._marks.setdefault(pod.uid, _Mark(pod))
        mark.is_wanted = True
        async with mark.lock:
            removals = dict.fromkeys(mark.keys)
            mark.keys |= annotations.keys()
            await self._annotate(pod, {**removals, **annotations})
            mark.keys = set(annotations)

    async def remove(self, uid: str) -> None:
        """Remove the claim from a pod, unless a later `put` for the pod replaces it.

        Nothing is sent if no claim is recorded for the pod.

        Args:
            uid: UID of the pod.

        Raises:
            KubeError: The claim may still be on the pod; `retry` tries again.
        """
        mark = self._marks.get(uid)
        if mark is None:
            return
        mark.is_wanted = False
        async with mark.lock:
            if mark.is_wanted:
                return
            try:
                await self._annotate(mark.pod, dict.fromkeys(mark.keys))
            except KubeError as error:
                if not has_gone(error):
                    raise
                log.debug("pod has gone", extra={"uid": uid})
            mark.keys.clear()
            if not mark.is_wanted:  # put may wait for the lock
                self.forget(uid)

    def remove_later(self, uid: str) -> None:
        """Start a background task that removes the claim from the pod with this UID.

        A failure is logged, and `retry` tries again.
        """
        task = asyncio.get_running_loop().create_task(self._remove_logged(uid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, uid: str) -> None:
        """Stop tracking the claim of a bound or deleted pod; its annotations stay."""
        self._marks.pop(uid, None)

    def retry(self) -> None:
        """Start another removal of each claim whose removal has failed."""
        for uid, mark in self._marks.items():
            if not mark.is_wanted and not mark.lock.locked():
                self.remove_later(uid)

    async def stop(self) -> None:
        """Cancel the background removals that `remove_later` started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _remove_logged(self, uid: str) -> None:
        try:
            await self.remove(uid)
        except KubeError as error:
            log.warning("claim not taken away", extra={"uid": uid, "error": str(error)})
