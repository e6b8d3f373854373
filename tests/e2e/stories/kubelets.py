"""Kubelets of nodes without machines: pods run, fail, succeed and end on order."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator

from sandbox.apiclient import ApiClient, ApiStatusError, Listed, Object
from tests.support.objects import PODS

_READY_AFTER_S = 0.3
_ENDS_AFTER_S = 0.3
_NOT_FOUND, _CONFLICT = 404, 409


class Kubelets:
    """Says of bound pods that they are ready, and lets deleted ones go.

    Protects that each pod is called ready once and ended once.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        #: UIDs of pods that have been called ready, or are to be
        self._ready: set[str] = set()
        #: pods that become ready on order only
        self._starting: list[Object] = []
        #: {uid: pod} of pods that are to end
        self._ending: dict[str, Object] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: what the names of pods begin with that end on order only
        self._kept: tuple[str, ...] = ()
        #: what the names of pods begin with that become ready on order only
        self._held: tuple[str, ...] = ()

    def hold(self, *names: str) -> None:
        """Call no pod ready whose name begins so until `ready_all`."""
        self._held = names

    async def ready_all(self) -> None:
        """Call all pods ready, and from now on each at once."""
        self._held = ()
        starting, self._starting = self._starting, []
        for pod in starting:
            await self._become_ready(pod)

    def keep(self, *names: str) -> None:
        """Let no deleted pod whose name begins so go until `end_all`."""
        self._kept = names

    async def end_all(self) -> None:
        """Let all deleted pods go, and from now on each at once."""
        self._kept = ()
        for pod in list(self._ending.values()):
            await self._end(pod)

    async def end(self, *names: str) -> None:
        """Let these of the deleted pods go."""
        for pod in list(self._ending.values()):
            if pod["metadata"]["name"] in names:
                await self._end(pod)

    async def fail(self, name: str, code: int = 1) -> None:
        """Have the container of a pod end with an error."""
        await self._tell(await self._pod(name), "Failed", _ended(code))

    async def succeed(self, name: str) -> None:
        """Have the container of a pod end well."""
        await self._tell(await self._pod(name), "Succeeded", _ended(0))

    async def restart(self, name: str) -> None:
        """Have the container of a pod end and be started again."""
        again = _container({"running": {}}, restarts=1)
        await self._tell(await self._pod(name), "Running", again, ready="True")

    async def _pod(self, name: str) -> Object:
        return await self._api.get(f"{PODS}/{name}")

    async def follow(self) -> None:
        """Serve the pods for ever."""
        async for event in self._api.follow(PODS):
            for item in event.items if isinstance(event, Listed) else [event.item]:
                if isinstance(event, Listed) or not event.gone:
                    self._take(item)
                else:
                    self._ending.pop(item["metadata"]["uid"], None)

    def _take(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in pod["metadata"]:
            if uid not in self._ending:
                self._ending[uid] = pod
                self._begin(self._end_later(pod))
        elif pod["status"].get("phase") == "Pending" and uid not in self._ready:
            self._ready.add(uid)
            self._begin(self._become_ready(pod))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _become_ready(self, pod: Object) -> None:
        await asyncio.sleep(_READY_AFTER_S)
        if pod["metadata"]["name"].startswith(self._held):
            self._starting.append(pod)
            return
        with gone():
            await self._tell(pod, "Running", _container({"running": {}}), ready="True")

    async def _end_later(self, pod: Object) -> None:
        await asyncio.sleep(_ENDS_AFTER_S)
        if not pod["metadata"]["name"].startswith(self._kept):
            await self._end(pod)

    async def _end(self, pod: Object) -> None:
        meta = pod["metadata"]
        with gone():
            # A Job waits for what its pods ended with.
            await self._tell(pod, "Failed", _ended(137))
            await self._api.delete(f"{PODS}/{meta['name']}", uid=meta["uid"], grace_s=0)

    async def _tell(
        self, pod: Object, phase: str, container: Object, *, ready: str = "False"
    ) -> None:
        """Tell the status of a pod, and of no other of its name."""
        kinds = ("Ready", "ContainersReady")
        conditions = [{"type": kind, "status": ready} for kind in kinds]
        status = {"phase": phase, "conditions": conditions}
        named = {"name": pod["spec"]["containers"][0]["name"]} | container
        body = {
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": status | {"containerStatuses": [named]},
        }
        await self._api.patch_status(f"{PODS}/{pod['metadata']['name']}", body)


def _ended(code: int) -> Object:
    return _container({"terminated": {"exitCode": code}})


def _container(state: Object, restarts: int = 0) -> Object:
    return {
        "image": "x",
        "imageID": "x",
        "ready": "running" in state,
        "restartCount": restarts,
        "state": state,
    }


@contextlib.contextmanager
def gone() -> Iterator[None]:
    """Let a request fail because its pod is gone, or another has its name."""
    try:
        yield
    except ApiStatusError as error:
        if error.status not in (_NOT_FOUND, _CONFLICT):
            raise
