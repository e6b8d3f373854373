"""Connections without a kernel, so that simulated time never runs ahead of bytes."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest


class Pipe(asyncio.Transport):
    """One end of a connection: what is written here, the other end's protocol gets."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._is_paused = False
        self._is_closed = False
        self.other: Pipe

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if not self._is_closed:
            self._loop.call_soon(self.other._take, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def _take(self, data: bytes) -> None:
        self._waiting.append(data)
        self._drain()

    def _drain(self) -> None:
        while self._waiting and not self._is_paused and not self._is_closed:
            self._protocol.data_received(self._waiting.pop(0))

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._drain)

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(ConnectionResetError("cut"))

    def _end(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.call_soon(self._protocol.connection_lost, None)
        self._loop.call_soon(self.other._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """Nothing is ever held back."""


class Pipes(aiohttp.BaseConnector):
    """Leads each connection to a server in this process, while it is up."""

    allowed_protocol_schema_set = frozenset({"http"})

    def __init__(self, serve: Callable[[], asyncio.Protocol]) -> None:
        super().__init__(keepalive_timeout=60)
        self._serve = serve
        self.is_down = False
        self.refused = 0
        self.open: list[Pipe] = []

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: Any,
        timeout: Any,  # noqa: ASYNC109  # aiohttp's signature
    ) -> ResponseHandler:
        if self.is_down:
            self.refused += 1
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = self._factory(), self._serve()
        ours, theirs = Pipe(near), Pipe(far)
        ours.other, theirs.other = theirs, ours
        self.open.append(theirs)
        far.connection_made(theirs)
        near.connection_made(ours)
        return near

    def go_down(self) -> None:
        self.is_down = True
        opened, self.open = self.open, []
        for end in opened:
            end.abort()
