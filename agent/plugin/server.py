"""Serve on our socket, register with the kubelet, and notice when to do it again.

The kubelet forgets its plugins when it restarts, and drops one whose stream
ends. So one round is: serve, register, wait for a sign that the registration
is no longer good, stop serving. The old stream ends before the new
registration: the other way round the kubelet would disconnect the new one.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import grpc

from agent.plugin.servicer import Servicer, options
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products import Product
from service.backoff import Backoff

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"

#: Two calls of stat() each time; a kubelet that restarts is noticed within it
#: even if the stream does not end.
LOOK_EACH_S = 0.25
#: A kubelet that has taken a registration opens the stream at once.
STREAM_WITHIN_S = 10.0
REGISTER_WITHIN_S = 5.0
#: How long a running Allocate may go on when we are told to stop.
DRAIN_S = 20.0
#: How long the last answers may take to leave.
FLUSH_S = 0.5

#: Python's client sends the path of a unix socket as :authority otherwise,
#: which Go servers refuse.
DIAL_OPTIONS = (("grpc.default_authority", "localhost"),)
#: Else a failed connection is remembered for a second, for all channels together,
#: and each new one fails at once.
REGISTER_OPTIONS = (*DIAL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


class Server:
    """Protects the registration: whether the kubelet knows us now."""

    def __init__(
        self,
        make_servicer: Callable[[], Servicer],
        *,
        product: Product,
        kubelet_dir: Path,
        on_registered: Callable[[], object],
        backoff: Backoff | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            make_servicer: A new servicer for each round.
            product: Names the resource.
            kubelet_dir: The kubelet's device plugin directory.
            on_registered: Told each time that the kubelet has taken us.
            backoff: Pauses while this kubelet does not take us.
        """
        self._make_servicer = make_servicer
        self._product = product
        self._kubelet_socket = kubelet_dir / KUBELET_SOCKET
        self._own_socket = kubelet_dir / f"{product.chip_prefix.rstrip('-')}.sock"
        self._on_registered = on_registered
        self._backoff = backoff or Backoff()
        self._problem: str | None = "not registered with the kubelet yet"
        self._servicer: Servicer | None = None

    def problem(self) -> str | None:
        """Why the kubelet does not know our devices now; None: it does.

        It takes the list in after it has answered Register: a pod that it admits
        between the two is rejected.
        """
        if self._problem is None and not self._is_followed():
            return "the kubelet does not follow the device list"
        return self._problem

    def _is_followed(self) -> bool:
        return self._servicer is not None and self._servicer.is_followed

    async def run(self) -> NoReturn:
        """Keep registered until cancelled."""
        while True:
            kubelet = await self._wait_for_kubelet()
            try:
                await self.run_once(kubelet)
                self._backoff.reset()
            except (grpc.aio.AioRpcError, OSError, TimeoutError) as error:
                pause_s = self._backoff.next_s()
                reason = _said(error)
                self._problem = f"registering with the kubelet failed: {reason}"
                log.warning(
                    "registration failed",
                    extra={"reason": reason, "retry_in_s": round(pause_s, 2)},
                )
                await self._pause(pause_s, kubelet)

    async def run_once(self, kubelet: tuple[int, int]) -> None:
        """Serve and register; return when the registration is no longer good.

        Args:
            kubelet: Its socket, by which its successor is known.
        """
        servicer = self._servicer = self._make_servicer()
        self._own_socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(servicer, server)
        self._bind(server)
        await server.start()
        try:
            self._own_socket.chmod(0o600)
            await self._register()
            self._problem = None
            self._on_registered()
            log.info("registered", extra={"resource": self._product.resource})
            reason = await self._until_stale(servicer, kubelet)
            log.info("registration ended", extra={"reason": reason})
        finally:
            self._problem = (
                "stopping"
                if _is_told_to_stop()
                else "registering with the kubelet again"
            )
            await asyncio.shield(asyncio.ensure_future(_stop(server, servicer)))
            self._own_socket.unlink(missing_ok=True)

    def _bind(self, server: grpc.aio.Server) -> None:
        try:
            server.add_insecure_port(f"unix://{self._own_socket}")
        except RuntimeError as error:  # all that grpc says of a directory that is gone
            raise OSError(f"cannot serve at {self._own_socket}") from error

    async def _wait_for_kubelet(self) -> tuple[int, int]:
        while True:
            identity = _identity(self._kubelet_socket)
            if identity is not None:
                return identity
            await asyncio.sleep(LOOK_EACH_S)

    async def _pause(self, pause_s: float, kubelet: tuple[int, int]) -> None:
        """Sleep, but no longer than until another kubelet is there.

        One that was stopped leaves its socket behind, so that registering fails for
        as long as it is away; its successor is not to wait for our next try.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_s
        while (left_s := until - loop.time()) > 0:
            await asyncio.sleep(min(LOOK_EACH_S, left_s))
            if _identity(self._kubelet_socket) not in (kubelet, None):
                self._backoff.reset()
                return

    async def _register(self) -> None:
        request = api_pb2.RegisterRequest(
            version=API_VERSION,
            endpoint=self._own_socket.name,
            resource_name=self._product.resource,
            options=options(),
        )
        async with grpc.aio.insecure_channel(
            f"unix://{self._kubelet_socket}", options=REGISTER_OPTIONS
        ) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            await stub.Register(request, timeout=REGISTER_WITHIN_S)

    async def _until_stale(self, servicer: Servicer, kubelet: tuple[int, int]) -> str:
        """Wait for any sign that the kubelet no longer knows us; say which."""
        loop = asyncio.get_running_loop()
        opens_by = loop.time() + STREAM_WITHIN_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EACH_S):
                    await servicer.stream_ended.wait()
            if servicer.stream_ended.is_set():
                return "the kubelet ended the device list stream"
            if _identity(self._kubelet_socket) != kubelet:
                return "the kubelet's socket was replaced"
            if _identity(self._own_socket) is None:
                return "our socket was removed"
            if not servicer.streams and loop.time() > opens_by:
                return "the kubelet did not ask for the device list"


async def _stop(server: grpc.aio.Server, servicer: Servicer) -> None:
    """End the streams, let running calls finish, take no new ones.

    gRPC's own grace would wait for connections too, also for one on which nothing
    was ever asked.
    """
    servicer.close()
    stopping = asyncio.ensure_future(server.stop(DRAIN_S))
    await servicer.answered(DRAIN_S)
    await server.stop(FLUSH_S)
    await stopping


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells one socket file from its successor; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _is_told_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _said(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
