"""How does the scheduler tell people what happened to a pod?

Events and the PodScheduled condition, sent beside the scheduling loop.
"""

import asyncio
import itertools

from sandbox.apiclient import FAILURES, ApiClient, ApiStatusError, Object, pod_path
from sandbox.pods import Pod
from service import clock

_RETRY_S = 0.5
#: of an event's note (validation.NoteLengthLimit)
_LONGEST = 1024


class Reporter:
    """What the scheduler still has to tell the API server, in order.

    Protects: equal events of one pod are one event with a count.
    """

    def __init__(self, client: ApiClient) -> None:
        """Start with nothing to say."""
        self._client = client
        self._serials = itertools.count(1)
        self._queue: asyncio.Queue[tuple[str, str, Object]] = asyncio.Queue()
        #: {(uid, reason, message): (path, count)}
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}

    def scheduled(self, pod: Pod, node: str) -> None:
        """Tell that a pod has got a node."""
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._event(pod, "Normal", "Scheduled", message)

    def failed(self, pod: Pod, message: str, *, unschedulable: bool) -> None:
        """Tell why a pod has not got a node this time."""
        self._event(pod, "Warning", "FailedScheduling", message)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable" if unschedulable else "SchedulerError",
            "message": message,
            "lastTransitionTime": clock.rfc3339(clock.wall_s()),
        }
        body: Object = {
            "metadata": {"uid": pod.uid},
            "status": {"conditions": [condition]},
        }
        self._queue.put_nowait(("STATUS", pod_path(pod.source), body))

    async def run(self) -> None:
        """Send whatever there is to send, for ever."""
        while True:
            await self._send(*await self._queue.get())

    async def _send(self, method: str, path: str, body: Object) -> None:
        while True:
            if await self._try(method, path, body):
                return
            await asyncio.sleep(_RETRY_S)

    def _event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST - 4]} ..."
        now = clock.rfc3339(clock.wall_s())
        events = f"/api/v1/namespaces/{pod.namespace}/events"
        key = (pod.uid, reason, message)
        if key in self._told:
            path, count = self._told[key]
            self._told[key] = (path, count + 1)
            again: Object = {"count": count + 1, "lastTimestamp": now}
            self._queue.put_nowait(("PATCH", path, again))
            return
        name = f"{pod.name}.{clock.wall_ns():x}.{next(self._serials)}"
        self._told[key] = (f"{events}/{name}", 1)
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "default-scheduler"},
            "reportingComponent": "default-scheduler",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._queue.put_nowait(("POST", events, event))

    async def _try(self, method: str, path: str, body: Object) -> bool:
        try:
            if method == "STATUS":
                await self._client.patch_status(path, body)
            elif method == "PATCH":
                await self._client.patch(path, body)
            else:
                await self._client.create(path, body)
        except ApiStatusError as error:
            # Gone, replaced or refused: sending it again would not help.
            return error.status < 500
        except FAILURES:
            return False
        return True
