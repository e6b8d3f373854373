"""How long may a caller take to say what it wants? Whoever takes longer is cut off.

aiohttp waits for ever for the first header and for the rest of a body. A caller that
dribbles bytes would keep a connection each, until there are none left for others. An
answer may take as long as it likes: binds of a job wait for each other.
"""

import asyncio
from typing import NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

#: A scheduler on the same cluster has said everything within milliseconds; 60 MB of
#: whole nodes take a second or two.
PATIENCE_S = 15.0


class Patience:
    """Cuts off who is slow. Owner of what is known of connections and requests."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        """Know of no connection.

        Args:
            patience_s: from the connection to the end of the first request's headers,
                and again to the end of a body; both a little longer at times.
        """
        self._patience_s = patience_s
        #: {connection: loop time at which it was first seen, inf once it has asked}
        self._since_s: dict[object, float] = {}
        #: {id: (request, loop time at which its headers had come)}
        self._requests: dict[int, tuple[web.BaseRequest, float]] = {}
        #: connections that were cut off
        self.cut_count = 0

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that a request has come this far."""
        self._since_s[request.protocol] = float("inf")
        self._requests[id(request)] = (request, asyncio.get_running_loop().time())
        try:
            return await handler(request)
        finally:
            del self._requests[id(request)]

    async def run(self, server: web.Server) -> NoReturn:
        """Look at all connections again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._patience_s / 4)
            self.look(server)

    def look(self, server: web.Server) -> None:
        """Cut off whoever has been slow for too long."""
        now_s = asyncio.get_running_loop().time()
        before_s = now_s - self._patience_s
        self._since_s = {
            connection: self._since_s.get(connection, now_s)
            for connection in server.connections
        }
        for connection in server.connections:
            if self._since_s[connection] < before_s:
                self._cut(connection.transport)
        for request, began_s in list(self._requests.values()):
            if began_s < before_s and not request.content.is_eof():
                self._cut(request.transport)

    def _cut(self, transport: asyncio.BaseTransport | None) -> None:
        if isinstance(transport, asyncio.Transport) and not transport.is_closing():
            self.cut_count += 1
            transport.abort()
