"""Writes on a PodGroup why it is not enqueued, as a condition that MindCluster reads.

Volcano and the extender both write PodGroups. The API server rejects a write if the
PodGroup has changed since its writer read it, so neither loses the other's condition.
Volcano repeats a rejected write in its next session.

Volcano replaces the first condition of type `Unschedulable`, whoever wrote it. The
extender's condition has that type too. So the extender puts its condition behind
Volcano's own, and waits until Volcano's own exists.
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
    """Writes on each PodGroup why it is not enqueued, as a condition.

    Once the extender no longer refuses the PodGroup, the condition is removed.

    Protects: at most one refusal is written to a PodGroup in `SPACING_S`.
    """

    def __init__(self, api: GroupApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        #: {UID of a PodGroup: time of the last write}
        self._written: dict[str, float] = {}
        #: {UID of a PodGroup: condition to be removed}
        self._removals: dict[str, _Removal] = {}
        #: writes in progress; each ends by itself
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_forbidden = False

    def record_refusal(self, job: Job, text: str) -> None:
        """Start to write `text`, a refusal, as a condition of a job's PodGroup.

        Nothing is written

        - within `SPACING_S` of the last write to the PodGroup,
        - if the extender's condition has this text already, or
        - if Volcano has not written its own condition yet.

        Volcano asks about a refused job in each session, so a later call can write.
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

        The removal is due `SETTLED_S` after this call; the next `tick` then starts it.
        Nothing is scheduled if the PodGroup has no condition of the extender.
        """
        if self._is_forbidden or job.group_uid in self._removals:
            return
        if remove_condition(job.conditions) is None:
            return
        self._removals[job.group_uid] = _Removal(
            job.namespace, job.name, self._clock.now_s() + SETTLED_S
        )

    def tick(self) -> None:
        """Start the due removals of conditions that `record_admitted` scheduled."""
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

    An earlier refusal of the extender is left out. Return None if nothing is to be
    written: the conditions contain a refusal of the extender with this text already, or
    Volcano has not written its own condition of type `Unschedulable` yet.

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
    """Return a PodGroup's conditions without the extender's own condition.

    Return None if `current` has no condition of the extender.
    """
    foreign = [condition for condition in current if not _is_ours(condition)]
    return foreign if len(foreign) < len(current) else None


def _is_ours(condition: Condition) -> bool:
    return condition.get("type") == TYPE and condition.get("reason") == REASON
