"""Writes on a PodGroup why it is not enqueued, as a condition that MindCluster reads.

Volcano replaces the whole PodGroup, based on the version that it read. So the
extender's condition survives Volcano's writes. If the extender writes after Volcano's
read, the API server refuses Volcano's write. Volcano repeats that write in the
following session. Volcano treats the first condition of type `Unschedulable` as
Volcano's. So the extender's condition stands behind Volcano's, and is not written
before Volcano's exists.

Volcano's requests contain the PodGroup's conditions. So this module needs no read
before a write, and writes only if the extender's condition changes.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.clocks import Clock
from extender.volcano.protocol import Job
from kube.errors import ConflictError, ForbiddenError, KubeError, NotFoundError
from kube.podgroups import Condition
from service import clock as times

log = logging.getLogger(__name__)

TYPE = "Unschedulable"
#: MindCluster's reason, by which its clusterd finds the condition.
REASON = "JobEnqueueFailed"
#: Time between two writes to one PodGroup; each may make a write of Volcano fail.
SPACING_S = 10.0
#: Time after admission in which Volcano binds the pods and updates the PodGroup.
SETTLED_S = 10.0
#: Tries to remove a condition. MindCluster never removes its own.
_TRIES = 6


class GroupApi(Protocol):
    """The API server requests that `PodGroupConditions` needs, as an interface."""

    async def read(self, namespace: str, name: str) -> tuple[str, Sequence[Condition]]:
        """Read a PodGroup; return its resourceVersion and its conditions."""

    async def write(
        self, namespace: str, name: str, version: str, conditions: Sequence[Condition]
    ) -> None:
        """Replace a PodGroup's conditions if its resourceVersion is still `version`."""


@dataclass(slots=True)
class _Removal:
    """An admitted PodGroup, from which the extender's condition is to be removed."""

    namespace: str
    name: str
    due_s: float
    tries: int = 0


class PodGroupConditions:
    """Writes on PodGroups why they are not enqueued, as a condition.

    When a PodGroup is admitted, the condition is removed from it.

    Protects: at most one refusal is written to a PodGroup in `SPACING_S`.
    """

    def __init__(self, api: GroupApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        #: {UID of a PodGroup: time of the last write}
        self._written: dict[str, float] = {}
        self._removals: dict[str, _Removal] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_forbidden = False

    def record_refusal(self, job: Job, text: str) -> None:
        """Start to write `text`, a refusal, as a condition of a job's PodGroup.

        Nothing is written within `SPACING_S` of the last write to the PodGroup. Volcano
        asks about the job again in each session, so a later call writes the text.
        Nothing is written either if a condition has this text already. The same holds
        if Volcano has not written its own condition yet.
        """
        self._removals.pop(job.group_uid, None)
        now_s = self._clock.now_s()
        since_s = self._written.get(job.group_uid)
        if since_s is not None and now_s - since_s < SPACING_S:
            return
        conditions = add_condition(
            job.conditions,
            text,
            at=times.rfc3339(self._clock.wall_s()),
            transition=str(self._clock.now_ns()),
        )
        if conditions is None or not job.version or self._is_forbidden:
            return
        self._written[job.group_uid] = now_s
        self._start_task(self._write(job, conditions))

    def record_admitted(self, job: Job) -> None:
        """Schedule the removal of the extender's condition from an admitted PodGroup.

        The removal starts at the first `tick` after `SETTLED_S`. Nothing is scheduled
        if the PodGroup has no condition of the extender.
        """
        if self._is_forbidden or job.group_uid in self._removals:
            return
        if remove_condition(job.conditions) is None:
            return
        self._removals[job.group_uid] = _Removal(
            job.namespace, job.name, self._clock.now_s() + SETTLED_S
        )

    def tick(self) -> None:
        """Remove the extender's condition from each PodGroup whose removal is due.

        The removals run as background tasks.
        """
        now_s = self._clock.now_s()
        for uid, group in list(self._removals.items()):
            if now_s < group.due_s:
                continue
            group.tries += 1
            group.due_s = now_s + SETTLED_S
            self._start_task(self._remove_condition(uid, group))
        self._written = {
            uid: at_s for uid, at_s in self._written.items() if now_s - at_s < SPACING_S
        }

    async def stop(self) -> None:
        """Cancel the writes and removals of conditions that are in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_task(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, job: Job, conditions: Sequence[Condition]) -> None:
        try:
            await self._api.write(job.namespace, job.name, job.version, conditions)
        except (ConflictError, NotFoundError):
            log.debug("PodGroup has changed", extra={"group": job.name})
        except KubeError as error:
            self._log_failure(job.name, error)

    async def _remove_condition(self, uid: str, group: _Removal) -> None:
        try:
            version, current = await self._api.read(group.namespace, group.name)
            conditions = remove_condition(current)
            if conditions is not None:
                await self._api.write(group.namespace, group.name, version, conditions)
        except NotFoundError:
            pass
        except KubeError as error:
            if group.tries < _TRIES and not isinstance(error, ForbiddenError):
                return  # retried at the next tick
            self._log_failure(group.name, error)
        if self._removals.get(uid) is group:
            del self._removals[uid]

    def _log_failure(self, name: str, error: KubeError) -> None:
        if isinstance(error, ForbiddenError):
            self._is_forbidden = True  # logged once; the event has the reason too
            self._removals.clear()
        log.warning(
            "condition of a PodGroup not written",
            extra={"group": name, "error": str(error)},
        )


def add_condition(
    current: Sequence[Condition], text: str, *, at: str, transition: str
) -> list[Condition] | None:
    """Return a PodGroup's conditions with the extender's refusal as the last one.

    An earlier refusal of the extender is left out. Return None if the conditions
    contain a refusal with this text already. Return None also if Volcano has written no
    condition of type `Unschedulable`.

    Args:
        current: The conditions as Volcano sent them.
        text: The reason of the refusal.
        at: Time of the refusal, RFC 3339.
        transition: Unique id for the condition's `transitionID`.
    """
    foreign = [condition for condition in current if not _is_ours(condition)]
    if any(
        _is_ours(condition) and condition.get("message") == text
        for condition in current
    ):
        return None
    if not any(condition.get("type") == TYPE for condition in foreign):
        return None  # Volcano would take ours for its own
    return [
        *foreign,
        {
            "type": TYPE,
            "status": "True",
            "transitionID": transition,
            "lastTransitionTime": at,
            "reason": REASON,
            "message": text,
        },
    ]


def remove_condition(current: Sequence[Condition]) -> list[Condition] | None:
    """Return a PodGroup's conditions without the extender's; None if there is none."""
    foreign = [condition for condition in current if not _is_ours(condition)]
    return foreign if len(foreign) < len(current) else None


def _is_ours(condition: Condition) -> bool:
    return condition.get("type") == TYPE and condition.get("reason") == REASON
