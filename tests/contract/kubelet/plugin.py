"""A device plugin that writes down what the kubelet asks of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


def channel(socket: Path) -> grpc.aio.Channel:
    """Return a connection to a kubelet's socket."""
    options = [("grpc.default_authority", "localhost")]
    return grpc.aio.insecure_channel(f"unix:{socket}", options=options)


@dataclass(frozen=True)
class Preference:
    available: frozenset[str]
    must_include: frozenset[str]
    size: int


@dataclass(frozen=True)
class Allocate:
    ids: frozenset[str]


class Plugin(api_pb2_grpc.DevicePluginServicer):
    """Eight devices; what it prefers and answers is set by the test."""

    def __init__(self, resource: str, count: int = 8) -> None:
        self.resource = resource
        self.devices = {f"dev-{i}": "Healthy" for i in range(count)}
        self.calls: list[Preference | Allocate] = []
        self.order: list[str] = []
        self.prefers: Callable[[Preference], list[str]] | None = _lowest
        self.refusal = ""
        #: cleared: Allocate does not answer
        self.open = asyncio.Event()
        self.open.set()
        #: set while Allocate waits
        self.entered = asyncio.Event()
        self.streams = 0
        self._changed = asyncio.Condition()
        self._ending = False
        self._server: grpc.aio.Server | None = None

    async def serve(self, socket: Path) -> None:
        self._server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def register(self, socket: Path, *, version: str = "v1beta1") -> None:
        async with channel(socket.with_name("kubelet.sock")) as kubelet:
            await api_pb2_grpc.RegistrationStub(kubelet).Register(
                api_pb2.RegisterRequest(
                    version=version, endpoint=socket.name, resource_name=self.resource
                )
            )

    async def stop(self) -> None:
        self.open.set()
        if self._server is not None:
            await self._server.stop(grace=None)

    async def report(self, **health: str) -> None:
        """Change devices, dev_0="Unhealthy", and send the list."""
        async with self._changed:
            for name, value in health.items():
                self.devices[name.replace("_", "-")] = value
            self._changed.notify_all()

    async def end_streams(self) -> None:
        async with self._changed:
            self._ending = True
            self._changed.notify_all()

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: Context
    ) -> api_pb2.DevicePluginOptions:
        self.order.append("GetDevicePluginOptions")
        return api_pb2.DevicePluginOptions(
            get_preferred_allocation_available=self.prefers is not None
        )

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        self.order.append("ListAndWatch")
        self.streams += 1
        try:
            while not self._ending:
                yield api_pb2.ListAndWatchResponse(
                    devices=[
                        api_pb2.Device(ID=name, health=health)
                        for name, health in self.devices.items()
                    ]
                )
                async with self._changed:
                    await self._changed.wait()
        finally:
            self.streams -= 1

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: Context
    ) -> api_pb2.PreferredAllocationResponse:
        asked = request.container_requests[0]
        preference = Preference(
            available=frozenset(asked.available_deviceIDs),
            must_include=frozenset(asked.must_include_deviceIDs),
            size=asked.allocation_size,
        )
        self.calls.append(preference)
        assert self.prefers is not None
        return api_pb2.PreferredAllocationResponse(
            container_responses=[
                api_pb2.ContainerPreferredAllocationResponse(
                    deviceIDs=self.prefers(preference)
                )
            ]
        )

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        ids = list(request.container_requests[0].devices_ids)
        self.calls.append(Allocate(ids=frozenset(ids)))
        self.entered.set()
        await self.open.wait()
        self.entered.clear()
        if self.refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
        return api_pb2.AllocateResponse(
            container_responses=[
                api_pb2.ContainerAllocateResponse(envs={"DEVICES": ",".join(ids)})
            ]
        )

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: Context
    ) -> api_pb2.PreStartContainerResponse:
        self.order.append("PreStartContainer")
        return api_pb2.PreStartContainerResponse()

    @property
    def allocations(self) -> list[frozenset[str]]:
        return [call.ids for call in self.calls if isinstance(call, Allocate)]


def _lowest(asked: Preference) -> list[str]:
    rest = sorted(asked.available - asked.must_include)
    return [*asked.must_include, *rest][: asked.size]
