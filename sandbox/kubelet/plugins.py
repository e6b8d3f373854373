"""How does the kubelet talk to device plugins?

The registration server on `kubelet.sock`, and one client per resource that
dials back and follows ListAndWatch (cm/devicemanager/plugin/v1beta1). Calls to
a plugin have no deadline, as in the real one.
"""

import asyncio
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import grpc.aio

from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet import rpc
from sandbox.kubelet.devices import DeviceError

VERSION = "v1beta1"
SOCKET = "kubelet.sock"
#: plugin/v1beta1/client.go:121
_DIAL_S = 10.0


class PluginEvents(Protocol):
    """Who wants to know what plugins do."""

    def plugin_connected(self, resource: str) -> None:
        """Take note of a plugin that was dialled and gave its options."""

    def plugin_reported(self, resource: str, devices: dict[str, str]) -> None:
        """Take a complete device list: {id: health}."""

    def plugin_disconnected(self, resource: str) -> None:
        """Take note that the resource has no plugin any more."""


class PluginClient:
    """One connection to one plugin."""

    def __init__(self, resource: str, socket: Path) -> None:
        """Remember where the plugin listens; `connect` dials."""
        self.resource = resource
        self._socket = socket
        self._channel = rpc.channel(socket)
        self._stub = api_pb2_grpc.DevicePluginStub(self._channel)
        self._options = api_pb2.DevicePluginOptions()
        #: whether the kubelet has given this endpoint up
        self.stopped = False

    async def connect(self) -> None:
        """Dial, and ask for the options.

        Raises:
            DeviceError: the plugin does not answer.
        """
        try:
            async with asyncio.timeout(_DIAL_S):
                await self._channel.channel_ready()
        except (TimeoutError, grpc.aio.UsageError):
            # UsageError: an older stream ended meanwhile and closed this channel.
            raise DeviceError(
                "failed to dial device plugin: context deadline exceeded"
            ) from None
        call = self._stub.GetDevicePluginOptions(api_pb2.Empty())
        failed = "failed to get device plugin options: "
        self._options = await rpc.answer(call, failed)

    async def follow(self, report: Callable[[dict[str, str]], None]) -> None:
        """Hand each device list to `report` until the stream ends."""
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for response in self._stub.ListAndWatch(api_pb2.Empty()):
                report({device.ID: device.health for device in response.devices})
        rpc.pass_on_cancellation()

    async def preferred(
        self, available: tuple[str, ...], must_include: tuple[str, ...], size: int
    ) -> tuple[str, ...]:
        """Ask which ids the plugin would like to give; empty where it does not say."""
        if not self._options.get_preferred_allocation_available:
            return ()
        request = api_pb2.PreferredAllocationRequest(
            container_requests=[
                api_pb2.ContainerPreferredAllocationRequest(
                    available_deviceIDs=available,
                    must_include_deviceIDs=must_include,
                    allocation_size=size,
                )
            ]
        )
        response = await rpc.answer(
            self._stub.GetPreferredAllocation(request),
            "device plugin GetPreferredAllocation rpc failed with err: ",
        )
        if not response.container_responses:
            return ()
        return tuple(response.container_responses[0].deviceIDs)

    async def allocate(
        self, ids: tuple[str, ...]
    ) -> tuple[api_pb2.ContainerAllocateResponse, ...]:
        """Tell the plugin that one container gets these ids."""
        request = api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)]
        )
        response = await rpc.answer(self._stub.Allocate(request))
        return tuple(response.container_responses)

    async def prepare(self, ids: tuple[str, ...]) -> None:
        """Call PreStartContainer, where the plugin asks for it."""
        if not self._options.pre_start_required:
            return
        request = api_pb2.PreStartContainerRequest(devices_ids=ids)
        await rpc.answer(
            self._stub.PreStartContainer(request, timeout=30),
            "device plugin PreStartContainer rpc failed with err: ",
        )

    async def close(self) -> None:
        """Hang up; calls in flight fail."""
        await self._channel.close(grace=None)


class PluginServer(api_pb2_grpc.RegistrationServicer):
    """The registration service and the clients that it has made.

    Protects: at most one client per resource is known. As in the real kubelet,
    a stream that ends takes down whichever client is known *then*.
    """

    def __init__(self, directory: Path, events: PluginEvents) -> None:
        """Serve in `directory`; nothing happens before `start`."""
        self._directory = directory
        self._events = events
        self._clients: dict[str, PluginClient] = {}
        #: which plugin calls go to: also one whose stream has ended
        self._endpoints: dict[str, PluginClient] = {}
        #: replaced connections stay open, as in the real kubelet
        self._opened: set[PluginClient] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Remove every socket in the directory and listen on our own."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # a plugin that ends takes its own
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._directory / SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        """Hang up on every plugin and stop listening."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        for client in self._opened:
            await client.close()
        for known in (self._clients, self._endpoints, self._opened):
            known.clear()
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    def endpoint(self, resource: str) -> PluginClient:
        """Return the plugin that serves a resource.

        Raises:
            DeviceError: its stream has ended, or it has not registered.
        """
        client = self._endpoints.get(resource)
        if client is None or client.stopped:
            raise DeviceError(f"endpoint {resource} has been stopped")
        return client

    async def Register(
        self,
        request: api_pb2.RegisterRequest,
        context: grpc.aio.ServicerContext[api_pb2.RegisterRequest, api_pb2.Empty],
    ) -> api_pb2.Empty:
        """Dial the plugin back before answering."""
        problem = _problem(request)
        if problem:
            await context.abort(grpc.StatusCode.UNKNOWN, problem)
        client = PluginClient(request.resource_name, self._directory / request.endpoint)
        self._clients[client.resource] = client
        self._opened.add(client)
        try:
            await client.connect()
        except DeviceError as error:
            self._clients.pop(client.resource, None)
            await client.close()
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._endpoints[client.resource] = client
        self._events.plugin_connected(client.resource)
        stream = asyncio.create_task(self._run(client))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        return api_pb2.Empty()

    async def _run(self, client: PluginClient) -> None:
        resource = client.resource
        await client.follow(
            lambda devices: self._events.plugin_reported(resource, devices)
        )
        # handler.go:122-133: not `client`, but whoever is registered by now.
        known = self._clients.pop(resource, None)
        if known is None:
            return
        if endpoint := self._endpoints.get(resource):
            endpoint.stopped = True
        self._events.plugin_disconnected(resource)
        await known.close()


def _problem(request: api_pb2.RegisterRequest) -> str:
    if request.version != VERSION:
        return (
            f'requested API version "{request.version}" is not supported by '
            f'kubelet. Supported version is ["{VERSION}"]'
        )
    domain, _, name = request.resource_name.partition("/")
    if not (domain and name) or domain.endswith("kubernetes.io"):
        return f'the ResourceName "{request.resource_name}" is invalid'
    return ""
