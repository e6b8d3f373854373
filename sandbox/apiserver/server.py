"""The API server as something to start and stop, and to take down for a while."""

import asyncio
import collections
import socket
import uuid
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from sandbox.apiserver.routes import Call, Routes
from sandbox.apiserver.store import Store
from sandbox.apiserver.watches import Hub
from service import clock

_HOST = "127.0.0.1"
# The real server's: often enough for tests is what they ask for.
_BOOKMARK_PERIOD_S = 60.0
_SHUTDOWN_S = 1.0
#: Turns of the event loop until an accepted connection is one of the server's, and
#: until a client in this process sees that its connection is broken.
_TURNS = 4


class ApiServer:
    """A Kubernetes API server in this process, on one port of this machine.

    Attributes:
        store: The objects, for tests that look at them without HTTP.
    """

    def __init__(
        self,
        *,
        bookmark_period_s: float = _BOOKMARK_PERIOD_S,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        """Make an empty cluster.

        Args:
            bookmark_period_s: How often a watch that asks for it gets a bookmark.
            middlewares: What stands between the clients and the server.
        """
        self.store = Store(now_s=clock.wall_s, new_uid=lambda: str(uuid.uuid4()))
        self._hub = Hub(self.store.log)
        self._routes = Routes(self.store, self._hub, bookmark_period_s)
        self._middlewares = middlewares
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._socket: socket.socket | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; the same before, during and after a pause."""
        if not self._port:
            raise RuntimeError("the API server has not been started")
        return f"http://{_HOST}:{self._port}"

    @property
    def calls(self) -> collections.Counter[Call]:
        """How often each user made each call."""
        return self._routes.calls

    @property
    def watch_count(self) -> int:
        """How many watches are open."""
        return self._hub.count

    async def start(self, port: int = 0) -> None:
        """Listen on a port of the loopback address, 0 for any."""
        self._port = port
        # A client that goes away ends its watch at once, not at the next event.
        self._runner = web.AppRunner(
            self._routes.application(self._middlewares),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_S,
        )
        await self._runner.setup()
        await self._listen(self._runner)

    async def stop(self) -> None:
        """Close everything; harmless when it is not running."""
        await self.pause()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def pause(self) -> None:
        """Begin an outage: connections break, new ones are refused."""
        if self._runner is None or self._site is None or self._socket is None:
            return
        # asyncio drops a connection without closing it if the server is closed between
        # its accept and its first turn: so no more are accepted, then all have theirs.
        asyncio.get_running_loop().remove_reader(self._socket)
        await _pass_turns()
        await self._site.stop()
        self._site = None
        if self._runner.server is not None:
            for connection in self._runner.server.connections:
                # Broken, not closed: to a client it is no good end of its watch.
                if connection.transport is not None:
                    connection.transport.abort()
            await _pass_turns()

    async def resume(self) -> None:
        """End an outage, on the same port and with the same objects."""
        if self._runner is not None and self._site is None:
            await self._listen(self._runner)

    def expire(self) -> None:
        """Compact the whole history: old watches and list tokens get 410."""
        self._hub.expire()

    async def _listen(self, runner: web.AppRunner) -> None:
        self._socket = socket.create_server((_HOST, self._port))
        self._site = web.SockSite(runner, self._socket)
        await self._site.start()
        self._port = int(runner.addresses[0][1])


async def _pass_turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
