"""Timeouts of requests: connections of slow callers are closed.

aiohttp waits without limit for the first header and for the rest of a body. Callers
that send single bytes could keep all connections. Answers have no timeout: binds of a
job wait for each other.
"""

import asyncio
from typing import NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler

#: A scheduler in the same cluster sends a request within milliseconds, or within 2 s
#: for 60 MB of whole nodes.
REQUEST_TIMEOUT_S = 15.0


class RequestTimeouts:
    """Connections and requests of one server, and when each of them began."""

    def __init__(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Start with no connection.

        Args:
            timeout_s: Seconds from the connection to the end of the first request's
                headers, and from there to the end of the body. A slow connection is
                closed up to a quarter later.
        """
        self._timeout_s = timeout_s
        #: {connection: loop time when it was first seen; inf after its first request}
        self._start_s: dict[object, float] = {}
        #: {id of the request: (request, loop time when its headers had arrived)}
        self._requests: dict[int, tuple[web.BaseRequest, float]] = {}
        #: number of connections that were closed
        self.closed_count = 0

    @web.middleware
    async def track_request(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Record that the headers of a request have arrived, until it is answered."""
        self._start_s[request.protocol] = float("inf")
        self._requests[id(request)] = (request, asyncio.get_running_loop().time())
        try:
            return await handler(request)
        finally:
            del self._requests[id(request)]

    async def run(self, server: web.Server) -> NoReturn:
        """Close slow connections periodically until cancelled."""
        while True:
            await asyncio.sleep(self._timeout_s / 4)
            self.close_slow(server)

    def close_slow(self, server: web.Server) -> None:
        """Close each connection whose request has not arrived in time."""
        now_s = asyncio.get_running_loop().time()
        deadline_s = now_s - self._timeout_s
        self._start_s = {
            connection: self._start_s.get(connection, now_s)
            for connection in server.connections
        }
        for connection in server.connections:
            if self._start_s[connection] < deadline_s:
                self._close(connection.transport)
        for request, start_s in list(self._requests.values()):
            if start_s < deadline_s and not request.content.is_eof():
                self._close(request.transport)

    def _close(self, transport: asyncio.BaseTransport | None) -> None:
        if isinstance(transport, asyncio.Transport) and not transport.is_closing():
            self.closed_count += 1
            transport.abort()
