"""Why a PodGroup is not taken up, in its conditions, where MindCluster's readers look.

Volcano writes a PodGroup whole, from what it read, so a condition of ours comes back
with each of its writes; and a write that crosses ours is refused, and done again in its
next session. It takes the first condition of its type for its own, though: ours stands
behind that one, and is not written before there is one. What stands there Volcano says
with each question, so nothing is read, and nothing is written but what has changed.
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
#: MindCluster's name for it, by which its clusterd finds it.
REASON = "JobEnqueueFailed"
#: Between two writes to one PodGroup: each may cost Volcano one of its own.
SPACING_S = 10.0
#: So long after a PodGroup was let in, Volcano has bound its pods and said so.
SETTLED_S = 10.0
#: Tries to take a condition away; MindCluster leaves its own for ever.
_TRIES = 6


class GroupApi(Protocol):
    """What conditions ask of the API server."""

    async def read(self, namespace: str, name: str) -> tuple[str, Sequence[Condition]]:
        """A PodGroup's version and its conditions."""

    async def write(
        self, namespace: str, name: str, version: str, conditions: Sequence[Condition]
    ) -> None:
        """Write them, if nobody has written since that version."""


@dataclass(slots=True)
class _Leaving:
    """A PodGroup that was let in, with our condition on it still."""

    namespace: str
    name: str
    due_s: float
    tries: int = 0


class Groups:
    """Says in conditions why PodGroups wait. Protects: a write each, seldom."""

    def __init__(self, api: GroupApi, clock: Clock) -> None:
        """Have said nothing."""
        self._api = api
        self._clock = clock
        #: {PodGroup: when it was written last}
        self._written: dict[str, float] = {}
        self._leaving: dict[str, _Leaving] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_forbidden = False

    def refused(self, job: Job, said: str) -> None:
        """Note that a PodGroup is not taken up; it is asked for again and again."""
        self._leaving.pop(job.group_uid, None)
        now_s = self._clock.now_s()
        since_s = self._written.get(job.group_uid)
        if since_s is not None and now_s - since_s < SPACING_S:
            return
        conditions = with_reason(
            job.conditions,
            said,
            at=times.rfc3339(self._clock.wall_s()),
            transition=str(self._clock.now_ns()),
        )
        if conditions is None or not job.version or self._is_forbidden:
            return
        self._written[job.group_uid] = now_s
        self._begin(self._write(job, conditions))

    def let_in(self, job: Job) -> None:
        """Note that a PodGroup may be taken up; what we have said goes soon."""
        if self._is_forbidden or job.group_uid in self._leaving:
            return
        if without_reason(job.conditions) is None:
            return
        self._leaving[job.group_uid] = _Leaving(
            job.namespace, job.name, self._clock.now_s() + SETTLED_S
        )

    def tick(self) -> None:
        """Take away what is due."""
        now_s = self._clock.now_s()
        for uid, group in list(self._leaving.items()):
            if now_s < group.due_s:
                continue
            group.tries += 1
            group.due_s = now_s + SETTLED_S
            self._begin(self._take_away(uid, group))
        self._written = {
            uid: at_s for uid, at_s in self._written.items() if now_s - at_s < SPACING_S
        }

    async def stop(self) -> None:
        """End what nobody waits for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, job: Job, conditions: Sequence[Condition]) -> None:
        try:
            await self._api.write(job.namespace, job.name, job.version, conditions)
        except (ConflictError, NotFoundError):
            log.debug("PodGroup has changed", extra={"group": job.name})
        except KubeError as error:
            self._failed(job.name, error)

    async def _take_away(self, uid: str, group: _Leaving) -> None:
        try:
            version, found = await self._api.read(group.namespace, group.name)
            conditions = without_reason(found)
            if conditions is not None:
                await self._api.write(group.namespace, group.name, version, conditions)
        except NotFoundError:
            pass
        except KubeError as error:
            if group.tries < _TRIES and not isinstance(error, ForbiddenError):
                return  # at the next tick
            self._failed(group.name, error)
        if self._leaving.get(uid) is group:
            del self._leaving[uid]

    def _failed(self, name: str, error: KubeError) -> None:
        if isinstance(error, ForbiddenError):
            self._is_forbidden = True  # said once: its event tells the reason as well
            self._leaving.clear()
        log.warning(
            "condition of a PodGroup not written",
            extra={"group": name, "error": str(error)},
        )


def with_reason(
    found: Sequence[Condition], said: str, *, at: str, transition: str
) -> list[Condition] | None:
    """The conditions with why it is not taken up; None: they are to stay as they are.

    Args:
        found: The conditions as they are.
        said: Why.
        at: When that was found.
        transition: What the change is called.
    """
    others = [each for each in found if not _is_ours(each)]
    if any(_is_ours(each) and each.get("message") == said for each in found):
        return None
    if not any(each.get("type") == TYPE for each in others):
        return None  # Volcano would take ours for its own
    return [
        *others,
        {
            "type": TYPE,
            "status": "True",
            "transitionID": transition,
            "lastTransitionTime": at,
            "reason": REASON,
            "message": said,
        },
    ]


def without_reason(found: Sequence[Condition]) -> list[Condition] | None:
    """The conditions without ours; None: there is none of ours."""
    others = [each for each in found if not _is_ours(each)]
    return others if len(others) < len(found) else None


def _is_ours(condition: Condition) -> bool:
    return condition.get("type") == TYPE and condition.get("reason") == REASON
