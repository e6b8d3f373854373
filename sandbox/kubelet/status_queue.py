"""How do statuses and events reach the API server, which may be away?

The latest status of each pod wins; whatever could not be sent is tried again
until it lands or the pod is gone. Nothing in the kubelet waits for it.
"""

import asyncio
import itertools
from http import HTTPStatus

from sandbox.apiclient import FAILURES, ApiClient, ApiStatusError, Object, pod_path
from sandbox.pods import Pod
from service import clock

_RETRY_S = 0.5
_GONE = {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}


class Outbox:
    """What this kubelet still has to tell the API server.

    Protects: statuses of one pod are sent in order, the newest last.
    """

    def __init__(self, client: ApiClient, node_name: str) -> None:
        """Start with nothing to say."""
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
        now = clock.rfc3339(clock.wall_s())
        suffix = f"{clock.wall_ns():x}.{next(self._serials)}"
        self._events.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {
                    "name": f"{pod.name}.{suffix}",
                    "namespace": pod.namespace,
                },
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
                "source": {"component": "kubelet", "host": self._node_name},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            }
        )
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
            if not await self._try("STATUS", pod_path(pod.source), body):
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
            body: Object = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            if await self._try("DELETE", pod_path(pod.source), body):
                del self._removals[uid]
            else:
                sent = False
        return sent

    async def _send_events(self) -> bool:
        while self._events:
            namespace = self._events[0]["metadata"]["namespace"]
            path = f"/api/v1/namespaces/{namespace}/events"
            if not await self._try("POST", path, self._events[0]):
                return False
            del self._events[0]
        return True

    async def _try(self, method: str, path: str, body: Object) -> bool:
        try:
            if method == "STATUS":
                await self._client.patch_status(path, body)
            else:
                await self._client.request(method, path, body=body)
        except ApiStatusError as error:
            # The pod is gone or another one: nobody needs this any more.
            return error.status in _GONE
        except FAILURES:
            return False
        return True
