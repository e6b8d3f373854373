"""How do statuses and events reach the API server, which may be away?

The latest status of each pod wins; whatever could not be sent is tried again
until it lands or the pod is gone. Nothing in the kubelet waits for it.
"""

import asyncio
import itertools
from http import HTTPStatus

from sandbox.apiclient import ApiClient, Object, is_settled, pod_path
from sandbox.pods import Pod, event_of

_RETRY_S = 0.5
#: The pod is gone or another one: nobody needs this any more.
_GONE = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


class Outbox:
    """What this kubelet still has to tell the API server.

    Protects: statuses of one pod are sent in order, the newest last.
    """

    def __init__(self, client: ApiClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._statuses: dict[str, tuple[Pod, Object]] = {}
        self._removals: dict[str, Pod] = {}
        self._events: list[Object] = []
        self._serials = itertools.count(1)
        self._wake = asyncio.Event()

    def status(self, pod: Pod, status: Object) -> None:
        """Send a pod's whole status."""
        self._statuses[pod.uid] = (pod, status)
        self._wake.set()

    def remove(self, pod: Pod) -> None:
        """Delete a pod whose containers have all ended."""
        self._removals[pod.uid] = pod
        self._wake.set()

    def event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        """Record an event about a pod."""
        event = event_of(pod, next(self._serials), kind, reason, message)
        event["source"] = {"component": "kubelet", "host": self._node_name}
        self._events.append(event)
        self._wake.set()

    async def run(self) -> None:
        """Send whatever there is to send, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._flush():
                self._wake.set()
                await asyncio.sleep(_RETRY_S)

    async def _flush(self) -> bool:
        """Try everything once; false if something has to be tried again."""
        statuses = await self._send_statuses()
        removals = await self._send_removals()
        return await self._send_events() and statuses and removals

    async def _send_statuses(self) -> bool:
        sent = True
        for uid, (pod, status) in list(self._statuses.items()):
            body: Object = {"metadata": {"uid": uid}, "status": status}
            request = self._client.patch_status(pod_path(pod.source), body)
            if not await is_settled(request, _GONE.__contains__):
                sent = False
            elif self._statuses.get(uid) == (pod, status):
                del self._statuses[uid]
        return sent

    async def _send_removals(self) -> bool:
        sent = True
        for uid, pod in list(self._removals.items()):
            # The last status goes first: whoever watches sees how the pod ended.
            if uid in self._statuses:
                continue
            path = pod_path(pod.source)
            request = self._client.delete(path, uid=uid, grace_s=0)
            if await is_settled(request, _GONE.__contains__):
                del self._removals[uid]
            else:
                sent = False
        return sent

    async def _send_events(self) -> bool:
        while self._events:
            namespace = self._events[0]["metadata"]["namespace"]
            path = f"/api/v1/namespaces/{namespace}/events"
            request = self._client.create(path, self._events[0])
            if not await is_settled(request, _GONE.__contains__):
                return False
            del self._events[0]
        return True
