"""Claims on pods that are not bound yet: written, and taken away again.

Volcano binds by itself, right after it has allocated the last pod of a job; so what
an agent reads must be on the pod before allocateFunc is answered. What Volcano takes
back must not stay: an agent would take it for the scheduler's word.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kube.errors import ConflictError, KubeError, NotFoundError
from scheduler_core.wire.pods import NpuPod

log = logging.getLogger(__name__)


class MarkApi(Protocol):
    """What marking asks of the API server."""

    async def mark(self, pod: NpuPod, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the pod with that UID; None removes one."""


@dataclass(slots=True)
class _Mark:
    """What may stand on one pod."""

    pod: NpuPod
    #: keys that we have written, or have tried to
    keys: set[str] = field(default_factory=set)
    #: whether they are to stay
    is_wanted: bool = True
    #: one write at a time, in the order in which they were asked for
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Marks:
    """Writes claims. Protects: one write for a pod at a time; nothing is left over."""

    def __init__(self, api: MarkApi) -> None:
        """Know of no pod."""
        self._api = api
        #: {uid: what may stand on it}
        self._marks: dict[str, _Mark] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __contains__(self, uid: str) -> bool:
        """Whether anything of ours may stand on the pod."""
        return uid in self._marks

    def found(self, pod: NpuPod, keys: set[str]) -> None:
        """Note what stands on a pod already."""
        self._marks[pod.uid] = _Mark(pod, keys)

    async def put(self, pod: NpuPod, annotations: Mapping[str, str]) -> None:
        """Write a claim; what an earlier one had besides goes.

        Raises:
            KubeError: it may be there or not: take it away.
        """
        mark = self._marks.setdefault(pod.uid, _Mark(pod))
        mark.is_wanted = True
        async with mark.lock:
            old = dict.fromkeys(mark.keys)
            mark.keys |= annotations.keys()
            await self._api.mark(pod, {**old, **annotations})
            mark.keys = set(annotations)

    async def take(self, uid: str) -> None:
        """Take a claim away, if there is one and nobody wants it again meanwhile.

        Raises:
            KubeError: it may be there still; `retry` goes on with it.
        """
        mark = self._marks.get(uid)
        if mark is None:
            return
        mark.is_wanted = False
        async with mark.lock:
            if mark.is_wanted:
                return
            try:
                await self._api.mark(mark.pod, dict.fromkeys(mark.keys))
            except (NotFoundError, ConflictError):
                log.debug("pod has gone", extra={"uid": uid})
            mark.keys.clear()
            if not mark.is_wanted:  # a write may have queued up behind this one
                self.forget(uid)

    def take_later(self, uid: str) -> None:
        """Take a claim away, whether anybody waits for it or not."""
        task = asyncio.get_running_loop().create_task(self._take(uid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, uid: str) -> None:
        """Note that a pod is bound or gone: what stands there is to stay."""
        self._marks.pop(uid, None)

    def retry(self) -> None:
        """Try again to take away what could not be taken away before."""
        for uid, mark in self._marks.items():
            if not mark.is_wanted and not mark.lock.locked():
                self.take_later(uid)

    async def stop(self) -> None:
        """End what nobody waits for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, uid: str) -> None:
        try:
            await self.take(uid)
        except KubeError as error:
            log.warning("claim not taken away", extra={"uid": uid, "error": str(error)})
