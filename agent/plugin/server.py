"""Serve a device plugin at a socket, and keep it registered with the kubelet.

The kubelet forgets its plugins when it restarts. It drops a plugin when the stream of
that plugin's device list ends. So one round of a plugin has four steps: serve at the
socket, register, wait for a sign that the registration has ended, stop serving. A round
ends its stream before the next round registers. If the old stream ended after the new
registration, the kubelet would drop the new registration.

A round answers the kubelet's requests before it ends its stream. When a stream ends,
the kubelet closes the connection. Calls under way are cancelled then, and their pods
are rejected for good. `Server._stop` has the order.

A rival is another plugin that serves the same resource. While there is a rival, no
round begins, and a running round sends no device list: see `agent.plugin.rivals`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import grpc

from agent.observe.registration import Registration
from agent.plugin import rivals
from agent.plugin.list_and_watch import ListAndWatchServicer
from agent.plugin.rivals import (
    KUBELET_SOCKET,
    AllocatableIds,
    Identity,
    Rivals,
    identity,
)
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products.table import Product
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"

#: Pause between two checks for the socket of an absent kubelet; each check is two calls
#: of stat(). Unit: seconds.
LOOK_EACH_S = 0.25
#: Pause between two checks for a kubelet that restarted without ending its stream.
#: Unit: seconds.
STALE_LOOK_EACH_S = 1.0
#: The same pause without a stream, whose end would be noticed at once. Unit: seconds.
STREAMLESS_LOOK_EACH_S = 0.5
#: How long the kubelet may take from a registration to opening the stream, which it
#: does at once. Unit: seconds.
STREAM_WITHIN_S = 10.0
#: Longest time of one Register call. Unit: seconds.
REGISTER_WITHIN_S = 5.0
#: How long the kubelet's questions are answered still when a round ends. Unit: seconds.
DRAIN_S = 20.0
#: How long the last answers may take to be sent. Unit: seconds.
FLUSH_S = 0.5

#: Without it Python's client sends the path of a unix socket as :authority, which Go
#: servers refuse.
DIAL_OPTIONS = (("grpc.default_authority", "localhost"),)
#: Without it a failed connection is remembered for 1 s, for all channels together, and
#: each new channel fails at once.
REGISTER_OPTIONS = (*DIAL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


class Server:
    """gRPC server of one device plugin, which keeps the plugin registered."""

    def __init__(  # noqa: PLR0913  # each comes from somewhere else
        self,
        make_servicer: Callable[[], ListAndWatchServicer],
        *,
        product: Product,
        kubelet_dir: Path,
        allocatable_ids: AllocatableIds,
        on_rival: Callable[[str], None],
        registration: Registration | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Construct the server of one resource without creating its socket.

        Args:
            make_servicer: Returns a new servicer, each time the plugin is served and
                registered.
            product: Product row that names the resource and the socket.
            allocatable_ids: Asks the kubelet which device ids of the resource the
                kubelet may give out.
            on_rival: Called with a sentence about another plugin of the resource, and
                with "" if there is none; the first check for one calls it, too.
            registration: Told when the plugin is registered, and when that has ended.
                None for virtual devices: the metrics count plugins for whole chips.
            backoff: Pauses after registrations that failed.
        """
        self._make_servicer = make_servicer
        self._product = product
        self._kubelet_socket = kubelet_dir / KUBELET_SOCKET
        self._socket = kubelet_dir / f"{product.chip_prefix.rstrip('-')}.sock"
        self._rivals = Rivals(
            self._socket, resource=product.resource, allocatable_ids=allocatable_ids
        )
        self._on_rival = on_rival
        self._registration = registration
        self._backoff = backoff or Backoff()
        #: evidence of a rival that the next check has to confirm; "" for none
        self._suspicion = ""
        #: number of requests of the kubelet when the suspicion came up
        self._requests_before = 0
        #: a sentence about the rival; "" without one; None before the first check
        self.rival: str | None = None
        self._problem: str | None = "not registered with the kubelet yet"
        self._servicer: ListAndWatchServicer | None = None

    def problem(self) -> str | None:
        """Return why the kubelet does not use the device list now; None if it does.

        To be registered is not enough. Until the kubelet has been sent the device list,
        it rejects each pod that requests the resource.
        """
        if self.rival:
            return f"{self.rival}; waiting until it has gone"
        if self._problem is None and not self.is_followed:
            return "the kubelet does not follow the device list"
        return self._problem

    @property
    def is_followed(self) -> bool:
        """Whether the kubelet got the device list on a stream that is still open."""
        return self._servicer is not None and self._servicer.is_followed

    def suspect(self, evidence: str) -> None:
        """Store evidence that another plugin serves the resource.

        The next check for rivals drops the evidence if the kubelet has sent this plugin
        an Allocate or a GetPreferredAllocation since this call. Such a request shows
        that the kubelet still uses this plugin.

        Args:
            evidence: A sentence about something that only another plugin can have done.
        """
        self._suspicion = evidence
        self._requests_before = self._servicer.request_count if self._servicer else 0

    async def run(self) -> NoReturn:
        """Keep the plugin registered with the kubelet until this task is cancelled.

        While another plugin serves the resource, this plugin does not register.
        """
        while True:
            kubelet = await self._wait_for_kubelet()
            self._set_rival(await self._rivals.find_before_registration())
            if self.rival:
                await asyncio.sleep(rivals.LOOK_EACH_S)
                continue
            try:
                await self.run_once()
                self._backoff.reset()
            except (grpc.aio.AioRpcError, OSError, TimeoutError) as error:
                pause_s = self._backoff.next_s()
                reason = _text_of(error)
                self._problem = f"registering with the kubelet failed: {reason}"
                log.warning(
                    "registration failed",
                    extra={"reason": reason, "retry_in_s": round(pause_s, 2)},
                )
                await self._pause(pause_s, kubelet)

    async def run_once(self) -> None:
        """Serve and register the plugin; return when the plugin has to register again.

        Raises:
            grpc.aio.AioRpcError: The kubelet refused the registration or did not
                answer.
            OSError: The plugin's socket cannot be created.
        """
        servicer = self._servicer = self._make_servicer()
        self._suspicion = ""
        server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(servicer, server)
        inode = await self._serve(server)
        try:
            # Only now: the check for a rival takes 1 s, and the kubelet may be another.
            kubelet = identity(self._kubelet_socket)
            await self._register(servicer)
            self._problem = None
            if self._registration is not None:
                self._registration.registered()
            log.info("registered", extra={"resource": self._product.resource})
            # two tasks: a kubelet that does not answer about rivals delays nothing else
            reason = await _first_result(
                self._until_stale(servicer, kubelet),
                self._watch_rivals(servicer, inode),
            )
            log.info("registration ended", extra={"reason": reason})
        finally:
            self._problem = (
                "stopping" if _is_cancelled() else "registering with the kubelet again"
            )
            stopping = asyncio.ensure_future(self._stop(server, servicer, inode))
            try:
                await asyncio.shield(stopping)
            finally:  # the agent may be told to end while its plugin begins anew
                await asyncio.wait({stopping})

    async def _stop(
        self, server: grpc.aio.Server, servicer: ListAndWatchServicer, inode: int
    ) -> None:
        """Answer what the kubelet asks, then end the stream, then stop `server`.

        With the stream the kubelet ends all calls to this plugin, so the stream ends
        last. New questions are answered until then: the kubelet asks for one pod after
        the other, and fails each that finds no plugin.
        """
        await servicer.wait_until_answered(DRAIN_S)
        if self._registration is not None:
            self._registration.unregistered()
        servicer.close()
        await server.stop(FLUSH_S)
        if rivals.inode_of(self._socket) == inode:
            self._socket.unlink(missing_ok=True)

    async def _serve(self, server: grpc.aio.Server) -> int:
        """Start a gRPC server at the plugin's socket; return the inode of the socket.

        The socket is created under a temporary name and then renamed. When a gRPC
        server stops, it removes the path at which it created its socket. Without the
        renaming, this could remove another plugin's socket at the same path.

        Raises:
            OSError: The socket cannot be created or renamed.
        """
        temporary = self._socket.with_name(f".{self._socket.name}-{os.getpid()}")
        try:
            server.add_insecure_port(f"unix://{temporary}")
        except RuntimeError as error:  # grpc raises it when the directory has gone
            raise OSError(f"cannot serve at {self._socket}") from error
        await server.start()
        try:
            temporary.chmod(0o600)
            temporary.rename(self._socket)
        except OSError:
            await server.stop(None)
            raise
        return rivals.inode_of(self._socket)

    async def _wait_for_kubelet(self) -> Identity:
        while True:
            kubelet = identity(self._kubelet_socket)
            if kubelet is not None:
                return kubelet
            await asyncio.sleep(LOOK_EACH_S)

    async def _pause(self, pause_s: float, kubelet: Identity) -> None:
        """Sleep after a failed registration; end early when a new kubelet has started.

        A stopped kubelet leaves its socket file behind, so registering fails until a
        kubelet starts again. The plugin then registers with the new kubelet at once.

        Args:
            pause_s: Longest sleep. Unit: seconds.
            kubelet: Identity of the kubelet's socket before the failed
                registration.
        """
        until = clock.loop_s() + pause_s
        while (rest_s := until - clock.loop_s()) > 0:
            await asyncio.sleep(min(LOOK_EACH_S, rest_s))
            if identity(self._kubelet_socket) not in (kubelet, None):
                self._backoff.reset()
                return

    async def _register(self, servicer: ListAndWatchServicer) -> None:
        request = api_pb2.RegisterRequest(
            version=API_VERSION,
            endpoint=self._socket.name,
            resource_name=self._product.resource,
            options=servicer.options,
        )
        async with grpc.aio.insecure_channel(
            f"unix://{self._kubelet_socket}", options=REGISTER_OPTIONS
        ) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            await stub.Register(request, timeout=REGISTER_WITHIN_S)

    async def _until_stale(
        self, servicer: ListAndWatchServicer, kubelet: Identity | None
    ) -> str:
        """Wait until the plugin has to register again; return the reason.

        Args:
            servicer: Servicer that serves the registered plugin.
            kubelet: Identity of the kubelet's socket when the plugin registered.
                It changes when the kubelet restarts.
        """
        opens_by = clock.loop_s() + STREAM_WITHIN_S
        while True:
            is_open = bool(servicer.streams)
            each_s = STALE_LOOK_EACH_S if is_open else STREAMLESS_LOOK_EACH_S
            with suppress(TimeoutError):
                async with asyncio.timeout(clock.next_beat_delay_s(each_s)):
                    await servicer.stream_ended.wait()
            if servicer.stream_ended.is_set():
                return "the kubelet ended the device list stream"
            if identity(self._kubelet_socket) != kubelet:
                return "the kubelet's socket was replaced"
            if identity(self._socket) is None:
                return "our socket was removed"
            if not servicer.streams and clock.loop_s() > opens_by:
                return "the kubelet did not ask for the device list"

    async def _watch_rivals(self, servicer: ListAndWatchServicer, inode: int) -> str:
        """Check for rivals until there is a reason to register again; return it."""
        reason = ""
        while not reason:
            await asyncio.sleep(clock.next_beat_delay_s(rivals.LOOK_EACH_S))
            reason = await self._check_rival(servicer, inode)
        return reason

    async def _check_rival(self, servicer: ListAndWatchServicer, inode: int) -> str:
        """Check for a rival; if there is one, stop sending device lists.

        Args:
            servicer: Servicer that serves the registered plugin.
            inode: Inode of the socket at which the servicer serves.

        Returns:
            "" if this plugin need not register again, else the reason: the rival has
            gone, or the kubelet has forgotten this plugin's device ids.
        """
        if self.rival:
            is_gone = await self._rivals.is_gone(inode)
            return "the other device plugin has gone" if is_gone else ""
        rival = await self._rivals.find_while_registered(
            inode, servicer.listed_ids, servicer.earlier_ids
        )
        if self._suspicion and servicer.request_count == self._requests_before:
            rival = rival or self._suspicion
        self._suspicion = ""
        if rival:
            servicer.freeze()
            self._set_rival(rival)
            return ""
        if self._rivals.is_forgotten:
            return "the kubelet has no device of ours any more"
        return ""

    def _set_rival(self, rival: str) -> None:
        if rival != self.rival:
            self.rival = rival
            self._on_rival(rival)


async def _first_result(*works: Coroutine[object, object, str]) -> str:
    """Return the result of the work that ends first, or raise its error.

    The other works are cancelled.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _text_of(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
