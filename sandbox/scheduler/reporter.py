"""How does the scheduler tell people what happened to a pod?

Events and the PodScheduled condition, sent beside the scheduling loop.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

from sandbox.apiclient import ApiClient, Object, is_settled, pod_path
from sandbox.pods import Pod, event_of
from service import clock

_COMPONENT = "default-scheduler"
_RETRY_S = 0.5
#: of an event's note (validation.NoteLengthLimit)
_LONGEST = 1024


class Reporter:
    """What the scheduler still has to tell the API server, in order.

    Protects: equal events of one pod are one event with a count.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._serials = itertools.count(1)
        #: requests that are sent until they land
        self._queue: asyncio.Queue[Callable[[], Awaitable[Object]]] = asyncio.Queue()
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
        status: Object = {"conditions": [condition]}
        body: Object = {"metadata": {"uid": pod.uid}, "status": status}
        send = partial(self._client.patch_status, pod_path(pod.source), body)
        self._queue.put_nowait(send)

    async def run(self) -> None:
        """Send whatever there is to send, for ever."""
        while True:
            request = await self._queue.get()
            # Gone, replaced or refused: sending it again would not help.
            while True:
                if await is_settled(request(), lambda status: status < 500):
                    break
                await asyncio.sleep(_RETRY_S)

    def _event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST - 4]} ..."
        events = f"/api/v1/namespaces/{pod.namespace}/events"
        event = event_of(pod, next(self._serials), kind, reason, message)
        key = (pod.uid, reason, message)
        if key in self._told:
            path, count = self._told[key]
            self._told[key] = (path, count + 1)
            told = {"count": count + 1, "lastTimestamp": event["lastTimestamp"]}
            self._queue.put_nowait(partial(self._client.patch, path, told))
            return
        self._told[key] = (f"{events}/{event['metadata']['name']}", 1)
        event["source"] = {"component": _COMPONENT}
        event["reportingComponent"] = _COMPONENT
        self._queue.put_nowait(partial(self._client.create, events, event))
