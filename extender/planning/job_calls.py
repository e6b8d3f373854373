"""Calls to the API server about jobs: sizes are read, members told and evicted."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from extender.cache import events
from extender.cache.cache import Cache
from extender.dispatch import Apply
from extender.gang import events as gang_events
from extender.gang.gang import Gang
from extender.gang.membership import SizeSource
from extender.gang.size import Size
from scheduler_core.wire.pods import NpuPod


class JobsApi(Protocol):
    """Requests to the API server about the pods of jobs."""

    async def size(self, source: SizeSource) -> Size | str:
        """Read from the API server how many pods a job needs.

        If the read fails or gives no number, returns a sentence that says so.
        """

    async def remove(self, pod: NpuPod) -> None:
        """Evict a pod because other pods of its job were not bound in time."""

    def tell(
        self, pod: NpuPod, reason: str, text: str, *, is_warning: bool = True
    ) -> None:
        """Emit a Kubernetes event on a pod about the pod's job."""


#: Time between two reads of the size of a job whose pods wait. Unit: seconds.
READ_EACH_S = 10.0
#: Reads that one tick begins, at most.
_READS_PER_TICK = 20


class JobCalls:
    """Open requests to the API server about jobs; at most one for the size of a job."""

    def __init__(self, cache: Cache, apply: Apply, api: JobsApi) -> None:
        """Start without open requests."""
        self._cache = cache
        self._apply = apply
        self._api = api
        #: jobs whose size is being read from the API server
        self._size_reads: set[str] = set()
        #: {job: earliest time of its next read by `tick`}
        self._again_s: dict[str, float] = {}
        #: when `tick` was called last
        self._ticked_s = 0.0
        #: open requests; each ends by itself
        self._tasks: set[asyncio.Task[None]] = set()

    def request_size(self, gang: Gang) -> None:
        """Start to read the size of a job, unless that is under way already.

        A read that has failed is left to `tick`: each filter call may ask for it.
        """
        if not gang.problem:
            self.read_size(gang)

    def read_size(self, gang: Gang) -> None:
        """Start to read the size of a job, unless that is under way already."""
        if gang.size_source is not None and gang.job not in self._size_reads:
            self._size_reads.add(gang.job)
            self._start(self._learn_size(gang, gang.size_source))

    def tick(self, now_s: float) -> None:
        """Start to read the sizes that may have been edited; called each second.

        A size is read again while pods of its job wait and are not as many as it says.

        Args:
            now_s: Seconds since the epoch.
        """
        gangs, self._ticked_s = self._cache.gangs, now_s
        self._again_s = {
            job: at_s for job, at_s in self._again_s.items() if job in gangs
        }
        due = [
            gang
            for gang in gangs.values()
            if gang.is_size_doubtful and self._again_s.get(gang.job, 0.0) <= now_s
        ]
        due.sort(key=lambda gang: (self._again_s.get(gang.job, 0.0), gang.job))
        for gang in due[:_READS_PER_TICK]:
            self._again_s[gang.job] = now_s + READ_EACH_S
            self.read_size(gang)

    def carry_out(self, effect: events.Effect) -> None:
        """Emit events on members of a job, evict them, or read the size of a job.

        Other effects are ignored. A size is read at once unless many are being read;
        then `tick` has it read.
        """
        match effect:
            case gang_events.EmitEvent(uids=uids, reason=reason, text=text):
                for pod in self._pods(uids):
                    self._api.tell(pod, reason, text, is_warning=effect.is_warning)
            case gang_events.EvictMembers(uids=uids):
                for pod in self._pods(uids):
                    self._start(self._api.remove(pod))
            case gang_events.ReadSize(job=job):
                gang = self._cache.gangs.get(job)
                if len(self._size_reads) >= _READS_PER_TICK:
                    self._again_s.pop(job, None)
                elif gang is not None:
                    self._again_s.setdefault(job, self._ticked_s + READ_EACH_S)
                    self.request_size(gang)
            case _:
                pass

    async def stop(self) -> None:
        """Cancel open requests."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _pods(self, uids: tuple[str, ...]) -> list[NpuPod]:
        return [pod for pod in map(self._cache.pods.get, uids) if pod is not None]

    async def _learn_size(self, gang_before: Gang, source: SizeSource) -> None:
        job, generation = gang_before.job, gang_before.generation
        count = gang_before.staying_count
        try:
            outcome = await self._api.size(source)
        finally:
            self._size_reads.discard(job)
        size, problem = (outcome, "") if isinstance(outcome, Size) else (None, outcome)
        gang = self._cache.gangs.get(job)
        if gang is not None and (
            gang.generation != generation
            or _has_outgrown(gang, _find_size(job, size), count)
        ):
            self.read_size(gang)  # it was made anew or edited since
        elif gang is not None and (size is not None or gang.size is None):
            # a read that fails does not take back what an earlier one has said
            self._apply(events.SizeRead(job=job, size=size, problem=problem))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _find_size(job: str, size: Size | None) -> Size | None:
    """Return the size of a job, or of the stage that it is, from that of its object.

    Args:
        job: Kind, namespace and name, and then perhaps the name of the stage.
    """
    stage = job.split("/", 3)[3:]
    if size is None or not stage:
        return size
    return next((s.size for s in size.stages if s.name == stage[0]), size)


def _has_outgrown(gang: Gang, size: Size | None, count: int) -> bool:
    """Whether a job has got more pods than a size says while that was being read.

    Args:
        count: Number of its pods when the read began. If there were more than the size
            says then, it is no earlier size.
    """
    if size is None or size.count is None:
        return False
    return count <= size.count < gang.staying_count
