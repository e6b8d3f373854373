"""How does Volcano's `extender` plugin ask, and what does it make of the answers?

Volcano v1.13, `pkg/scheduler/plugins/extender/extender.go`, with `ignorable: false`.
"""

from collections.abc import Sequence
from typing import Any

import aiohttp

from sandbox.apiclient import Object
from sandbox.scheduler.extender import ExtenderError, post
from sandbox.scheduler.volcanobodies import Task, job_info, node_info, task_info


class VolcanoExtender:
    """One plugin instance.

    Protects: what fails is refused, as the real one does it.
    """

    def __init__(
        self, session: aiohttp.ClientSession, url_prefix: str, timeout_s: float = 30.0
    ) -> None:
        """Call the extender at `url_prefix` through `session`."""
        self._session = session
        self._url_prefix = url_prefix.rstrip("/")
        self._timeout_s = timeout_s

    async def enqueueable(self, group: Object, tasks: Sequence[Task]) -> bool:
        """Whether the job may be taken up."""
        try:
            found = await self._post("jobEnqueueable", {"job": job_info(group, tasks)})
        except ExtenderError:
            return False
        return int(found["status"]) >= 0

    async def predicate(self, task: Task, node: Object, there: Sequence[Task]) -> str:
        """Why the task cannot go to the node; "" if it can."""
        body = {"task": task_info(task), "node": node_info(node, there)}
        try:
            return str((await self._post("predicate", body))["status"])
        except ExtenderError as error:
            return str(error)

    async def prioritize(
        self, task: Task, nodes: Sequence[tuple[Object, Sequence[Task]]]
    ) -> dict[str, float]:
        """Score nodes: {node: score}.

        Raises:
            ExtenderError: there is no score, and the task gets no node.
        """
        infos = [node_info(node, there) for node, there in nodes]
        body = {"task": task_info(task), "nodes": infos}
        found = await self._post("prioritize", body)
        if found["errorMessage"] or found["nodeScore"] is None:
            raise ExtenderError(found["errorMessage"])
        scores: dict[str, float] = found["nodeScore"]
        return scores

    async def allocate(self, task: Task) -> None:
        """Tell that the task has been put on its node.

        Raises:
            ExtenderError: it must be taken back.
        """
        found = await self._post("allocateFunc", {"task": task_info(task)})
        if found["errorMessage"]:
            raise ExtenderError(found["errorMessage"])

    async def deallocate(self, task: Task, before: Task) -> None:
        """Tell that the task has been taken back; a failure is only logged."""
        body = {"task": task_info(task, before=before)}
        try:
            await self._post("deallocateFunc", body)
        except ExtenderError:
            return

    async def _post(self, verb: str, body: Object) -> Any:
        url = f"{self._url_prefix}/{verb}"
        return await post(self._session, url, body, self._timeout_s)
