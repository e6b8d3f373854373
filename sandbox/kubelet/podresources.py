"""What does pod-resources tell about who has which device?

With the real one's omissions (apis/podresources/server_v1.go): no ordinary init
containers, no pods that the API server has already forgotten, no uids, and
nothing of what a lost checkpoint knew. `List` frees the ids of pods that have
just ended; `Get` does not.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import grpc.aio

from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.devices import DeviceTables
from sandbox.kubelet.profiles import Profile
from sandbox.kubelet.syncloop import SyncLoop
from sandbox.pods import Pod
from scheduler_core.wire.shapes import ContainerKind
from service import clock

SOCKET = "kubelet.sock"
#: apis/podresources/constants.go
_CALLS_PER_S = 100.0
_BURST = 10.0
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """The pod-resources service, v1."""

    def __init__(
        self, socket: Path, tables: DeviceTables, sync: SyncLoop, *, profile: Profile
    ) -> None:
        """Serve on `socket`, from `start` on, as kubelets of this profile do."""
        self._profile = profile
        self._socket = socket
        self._tables = tables
        self._sync = sync
        self._limiter = _Limiter()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening; calls in flight fail."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def List(
        self,
        request: api_pb2.ListPodResourcesRequest,
        context: _Context,
    ) -> api_pb2.ListPodResourcesResponse:
        """Return the devices of all active pods."""
        del request
        await self._limiter.take(context)
        of_all = self._profile.lists_ended
        pods = self._sync.pods() if of_all else self._sync.active_pods()
        self._tables.forget_inactive()
        return api_pb2.ListPodResourcesResponse(
            pod_resources=[self._resources(pod) for pod in pods]
        )

    async def Get(
        self,
        request: api_pb2.GetPodResourcesRequest,
        context: _Context,
    ) -> api_pb2.GetPodResourcesResponse:
        """Return the devices of one pod."""
        await self._limiter.take(context)
        if not self._profile.has_get:
            await context.abort(
                grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled"
            )
        wanted = (request.pod_namespace, request.pod_name)
        for pod in self._sync.pods():
            if (pod.namespace, pod.name) == wanted:
                resources = self._resources(pod)
                return api_pb2.GetPodResourcesResponse(pod_resources=resources)
        await context.abort(
            grpc.StatusCode.UNKNOWN,
            f"pod {request.pod_name} in namespace {request.pod_namespace} not found",
        )
        raise AssertionError("abort raises")

    async def GetAllocatableResources(
        self,
        request: api_pb2.AllocatableResourcesRequest,
        context: _Context,
    ) -> api_pb2.AllocatableResourcesResponse:
        """Return all healthy devices."""
        del request
        await self._limiter.take(context)
        return api_pb2.AllocatableResourcesResponse(
            devices=[
                device
                for resource, ids in self._tables.healthy.items()
                for device in _one_by_one(resource, ids)
            ]
        )

    def _resources(self, pod: Pod) -> api_pb2.PodResources:
        return api_pb2.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[
                api_pb2.ContainerResources(
                    name=container.name,
                    devices=self._devices(pod.uid, container.name),
                )
                for container in pod.containers
                if container.kind is not ContainerKind.INIT
            ],
        )

    def _devices(self, uid: str, container: str) -> Iterator[api_pb2.ContainerDevices]:
        for resource, assignment in self._tables.assigned(uid, container).items():
            yield from _one_by_one(resource, assignment.ids)


def _one_by_one(
    resource: str, ids: Iterable[str]
) -> Iterator[api_pb2.ContainerDevices]:
    for device in sorted(ids):
        yield api_pb2.ContainerDevices(resource_name=resource, device_ids=[device])


class _Limiter:
    """A token bucket for all callers together (apis/grpc/ratelimit.go)."""

    def __init__(self) -> None:
        self._tokens = _BURST
        self._filled_at = 0.0

    async def take(self, context: _Context) -> None:
        """Count one call; one too many is refused."""
        now = clock.loop_s()
        filled = self._tokens + (now - self._filled_at) * _CALLS_PER_S
        self._tokens, self._filled_at = min(_BURST, filled), now
        if self._tokens < 1:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"
            )
        self._tokens -= 1
