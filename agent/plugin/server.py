"""Serve on our socket, register with the kubelet, and notice when to do it again.

The kubelet forgets its plugins when it restarts, and drops one whose stream
ends. So one round is: serve, register, wait for a sign that the registration
is no longer good, stop serving. The old stream ends before the new
registration: the other way round the kubelet would disconnect the new one.

While another plugin serves our resource there is no round, or the one that is under
way stands still: see `agent.plugin.rivals`.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn, Protocol

import grpc

from agent.plugin import rivals
from agent.plugin.list_and_watch import ListServicer
from agent.plugin.rivals import KUBELET_SOCKET, Offered, Own, Rivals
from kubelet_api.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from scheduler_core.products.table import Product
from service import clock
from service.backoff import Backoff

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"

#: How often a kubelet that is not there is looked for. Two calls of stat() each time.
LOOK_EACH_S = 0.25
#: A kubelet that restarts is noticed within it even if the stream does not end …
STALE_LOOK_EACH_S = 1.0
#: … and within this while there is none, whose end would tell at once.
STREAMLESS_LOOK_EACH_S = 0.5
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


class Tell(Protocol):
    """Who wants to know what becomes of the registration."""

    def registered(self) -> object:
        """The kubelet has taken us."""

    def unregistered(self) -> object:
        """We have given the registration up."""

    @property
    def rival(self) -> Callable[[str], None]:
        """Called with who else serves our resource, in a sentence; "" for nobody."""


class Server:
    """Protects the registration: whether the kubelet knows us now, or somebody else."""

    def __init__(
        self,
        make_servicer: Callable[[], ListServicer],
        *,
        product: Product,
        kubelet_dir: Path,
        offered: Offered,
        tell: Tell,
        backoff: Backoff | None = None,
    ) -> None:
        """Do nothing yet.

        Args:
            make_servicer: A new servicer for each round.
            product: Names the resource.
            kubelet_dir: The kubelet's device plugin directory.
            offered: Asks the kubelet which devices it would give out.
            tell: Who wants to know.
            backoff: Pauses while this kubelet does not take us.
        """
        self._make_servicer = make_servicer
        self._product = product
        self._kubelet_socket = kubelet_dir / KUBELET_SOCKET
        self._own_socket = kubelet_dir / f"{product.chip_prefix.rstrip('-')}.sock"
        self._rivals = Rivals(
            self._own_socket, resource=product.resource, offered=offered
        )
        self._tell = tell
        self._backoff = backoff or Backoff()
        self._suspicion = ""
        self._asked_before = 0
        #: why the last look says that we should register again; "" for no reason
        self._outdated = ""
        #: who serves our resource besides us, in a sentence; "" for nobody; None
        #: before we have looked
        self.rival: str | None = None
        self._problem: str | None = "not registered with the kubelet yet"
        self._servicer: ListServicer | None = None

    def problem(self) -> str | None:
        """Why the kubelet does not know our devices now; None: it does.

        It takes the list in after it has answered Register: a pod that it admits
        between the two is rejected.
        """
        if self.rival:
            return f"{self.rival}; waiting until it has gone"
        if self._problem is None and not self.is_followed:
            return "the kubelet does not follow the device list"
        return self._problem

    @property
    def is_followed(self) -> bool:
        """Whether the kubelet has our device list and listens for more."""
        return self._servicer is not None and self._servicer.is_followed

    def suspect(self, evidence: str) -> None:
        """Take note of what only another plugin can have done.

        It is one, unless the kubelet asks us for devices before we look again.

        Args:
            evidence: A sentence.
        """
        self._suspicion = evidence
        self._asked_before = self._asked_count()

    def _asked_count(self) -> int:
        return self._servicer.asked_count if self._servicer is not None else 0

    async def run(self) -> NoReturn:
        """Keep registered until cancelled."""
        while True:
            kubelet = await self._wait_for_kubelet()
            self._take_note(await self._rivals.before())
            if self.rival:
                await asyncio.sleep(rivals.LOOK_EACH_S)
                continue
            try:
                await self.run_once()
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

    async def run_once(self) -> None:
        """Serve and register; return when the registration is no longer good."""
        servicer = self._servicer = self._make_servicer()
        self._suspicion = ""
        server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(servicer, server)
        inode = await self._serve(server)
        try:
            # Only now: the look for a rival takes a second, and it may be another's.
            kubelet = identity(self._kubelet_socket)
            await self._register(servicer)
            self._problem = None
            self._tell.registered()
            log.info("registered", extra={"resource": self._product.resource})
            async with _beside(self._keep_looking(servicer, inode)):
                reason = await self._until_stale(servicer, kubelet)
            log.info("registration ended", extra={"reason": reason})
        finally:
            self._problem = (
                "stopping"
                if _is_told_to_stop()
                else "registering with the kubelet again"
            )
            self._tell.unregistered()
            await asyncio.shield(asyncio.ensure_future(_stop(server, servicer)))
            if rivals.inode_of(self._own_socket) == inode:
                self._own_socket.unlink(missing_ok=True)

    async def _serve(self, server: grpc.aio.Server) -> int:
        """Start a server at our socket; return the inode of that.

        It is made under another name: gRPC removes the name that it was told, also
        when that is somebody else's by then.
        """
        making = self._own_socket.with_name(f".{self._own_socket.name}-{os.getpid()}")
        try:
            server.add_insecure_port(f"unix://{making}")
        except RuntimeError as error:  # all that grpc says of a directory that is gone
            raise OSError(f"cannot serve at {self._own_socket}") from error
        await server.start()
        try:
            making.chmod(0o600)
            making.rename(self._own_socket)
        except OSError:
            await server.stop(None)
            raise
        return rivals.inode_of(self._own_socket)

    async def _wait_for_kubelet(self) -> tuple[int, int]:
        while True:
            kubelet = identity(self._kubelet_socket)
            if kubelet is not None:
                return kubelet
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
            if identity(self._kubelet_socket) not in (kubelet, None):
                self._backoff.reset()
                return

    async def _register(self, servicer: ListServicer) -> None:
        request = api_pb2.RegisterRequest(
            version=API_VERSION,
            endpoint=self._own_socket.name,
            resource_name=self._product.resource,
            options=servicer.options,
        )
        async with grpc.aio.insecure_channel(
            f"unix://{self._kubelet_socket}", options=REGISTER_OPTIONS
        ) as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)
            await stub.Register(request, timeout=REGISTER_WITHIN_S)

    async def _until_stale(
        self, servicer: ListServicer, kubelet: tuple[int, int] | None
    ) -> str:
        """Wait for any sign that the kubelet no longer knows us; say which.

        Args:
            servicer: Ours of this round.
            kubelet: Its socket at which we registered; a successor has another.
        """
        loop = asyncio.get_running_loop()
        opens_by = loop.time() + STREAM_WITHIN_S
        while True:
            is_open = bool(servicer.streams)
            each_s = STALE_LOOK_EACH_S if is_open else STREAMLESS_LOOK_EACH_S
            with suppress(TimeoutError):
                async with asyncio.timeout(clock.until_beat_s(each_s)):
                    await servicer.stream_ended.wait()
            if servicer.stream_ended.is_set():
                return "the kubelet ended the device list stream"
            if identity(self._kubelet_socket) != kubelet:
                return "the kubelet's socket was replaced"
            if identity(self._own_socket) is None:
                return "our socket was removed"
            if not servicer.streams and loop.time() > opens_by:
                return "the kubelet did not ask for the device list"
            if self._outdated:
                return self._outdated

    async def _keep_looking(self, servicer: ListServicer, inode: int) -> None:
        """Look for another plugin until there is a reason to register again.

        Beside everything else: a kubelet that does not answer holds up nothing.
        """
        self._outdated = ""
        while not self._outdated:
            await asyncio.sleep(clock.until_beat_s(rivals.LOOK_EACH_S))
            self._outdated = await self._look_around(servicer, inode)

    async def _look_around(self, servicer: ListServicer, inode: int) -> str:
        """Look for another plugin; return why to register again, "" for no reason."""
        own = Own(inode=inode, listed=servicer.listed)
        if self.rival:
            gone = await self._rivals.is_gone(own)
            return "the other device plugin has gone" if gone else ""
        found = await self._rivals.beside(own)
        if self._suspicion and servicer.asked_count == self._asked_before:
            found = found or self._suspicion
        self._suspicion = ""
        if found:
            servicer.freeze()
            self._take_note(found)
            return ""
        if self._rivals.are_we_forgotten:
            return "the kubelet has no device of ours any more"
        return ""

    def _take_note(self, rival: str) -> None:
        if rival != self.rival:
            self.rival = rival
            self._tell.rival(rival)


async def _stop(server: grpc.aio.Server, servicer: ListServicer) -> None:
    """End the streams, let running calls finish, take no new ones.

    gRPC's own grace would wait for connections too, also for one on which nothing
    was ever asked.
    """
    servicer.close()
    stopping = asyncio.ensure_future(server.stop(DRAIN_S))
    await servicer.answered(DRAIN_S)
    await server.stop(FLUSH_S)
    await stopping


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells one socket file from its successor; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


@asynccontextmanager
async def _beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Have something done while the context lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()  # what has failed there fails here


def _is_told_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _said(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
