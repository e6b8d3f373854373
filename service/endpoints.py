"""HTTP server of a process: `/healthz`, `/readyz`, `/metrics` and its own routes.

`/healthz` answers while the event loop runs. `/readyz` answers 503 with the reason
while the process is not ready. `/metrics` has Prometheus' text format.
"""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from ssl import SSLContext
from typing import NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from service.quote import quote_value
from service.settings import SettingsError
from service.timeouts import REQUEST_TIMEOUT_S, RequestTimeouts
from service.tls import Certificates

#: Returns None when ready, else the reason.
Ready = Callable[[], str | None]
#: kube-scheduler sends 5,000 node names in some 250 kB, or whole nodes in 60 MB.
LARGEST_REQUEST_BYTES = 64 << 20
_STOP_S = 5.0
_PORT = re.compile("[0-9]{1,5}")


class Endpoints:
    """HTTP server of one process, with a fixed set of routes."""

    def __init__(
        self,
        registry: CollectorRegistry,
        ready: Ready,
        *,
        routes: Iterable[web.RouteDef] = (),
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Set up the routes; `serving` opens the socket.

        Args:
            registry: Metrics that `/metrics` shows.
            ready: Called at each `/readyz`.
            routes: Routes besides the three.
            request_timeout_s: Longest time in which a caller may send a request; s.
        """
        self.request_timeouts = RequestTimeouts(request_timeout_s)
        self._registry = registry
        self._ready = ready
        self._app = web.Application(
            client_max_size=LARGEST_REQUEST_BYTES,
            middlewares=[self.request_timeouts.track_request],
        )
        self._app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                *routes,
            ]
        )

    @asynccontextmanager
    async def serving(
        self,
        listen: str,
        address_file: Path | None = None,
        *,
        certificates: Certificates | None = None,
    ) -> AsyncIterator[str]:
        """Serve while the context lasts; yield the address as `host:port`.

        Args:
            listen: `host:port`; port 0 takes a free one. Without a host, or with
                `[::]`, it listens on every address of IPv4 and IPv6.
            address_file: Has the address while the server listens; removed at the end.
            certificates: For TLS; None for plain HTTP.

        Raises:
            SettingsError: `listen` is malformed or in use.
        """
        host, port = parse_listen(listen)
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=_STOP_S)
        await runner.setup()
        tasks: list[asyncio.Task[NoReturn]] = []
        try:
            context = certificates.context if certificates is not None else None
            try:
                await _site(runner, host, port, context).start()
            except OSError as error:
                text = f"listen {listen}: expected a free address, found {error}"
                raise SettingsError([text]) from error
            tasks += _start_tasks(runner, self.request_timeouts, certificates)
            address = _render_address(*runner.addresses[0][:2])
            with _write_address_file(address, address_file):
                yield address
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._ready()
        if reason is None:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"{reason}\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": CONTENT_TYPE_LATEST},
        )


def _start_tasks(
    runner: web.AppRunner,
    request_timeouts: RequestTimeouts,
    certificates: Certificates | None,
) -> list[asyncio.Task[NoReturn]]:
    """Start and return the tasks that run while the server listens."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[NoReturn]] = []
    if runner.server is not None:
        tasks.append(loop.create_task(request_timeouts.run(runner.server)))
    if certificates is not None:
        tasks.append(loop.create_task(certificates.run()))
    return tasks


def _site(
    runner: web.AppRunner, host: str, port: int, context: SSLContext | None
) -> web.BaseSite:
    """Return a listener on `host`, on one port for both families if it is every one.

    A socket for each family, as asyncio opens them, would get two ports for port 0.

    Raises:
        OSError: The address is in use.
    """
    if host not in {"", "::"}:
        return web.TCPSite(runner, host, port, ssl_context=context)
    has_both = socket.has_dualstack_ipv6()  # not where the kernel has no IPv6
    family = socket.AF_INET6 if has_both else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=has_both)
    return web.SockSite(runner, listener, ssl_context=context)


def _render_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listen(listen: str) -> tuple[str, int]:
    """Return host and port of `host:port`; the host may be `[v6]`.

    Args:
        listen: From the settings; `:8080` has the host "", which is every address.

    Raises:
        SettingsError: `listen` is malformed.
    """
    host, colon, port = listen.rpartition(":")
    address = host.removeprefix("[").removesuffix("]")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        value = quote_value(listen)
        text = f"listen: expected host:port with a port up to 65535, found {value}"
        raise SettingsError([text])
    return address, int(port)


@contextmanager
def _write_address_file(address: str, address_file: Path | None) -> Iterator[None]:
    """Keep the address in a file while the context lasts; write the file atomically."""
    if address_file is None:
        yield
        return
    draft = address_file.with_name(f".{address_file.name}.{os.getpid()}")
    draft.write_text(f"{address}\n", encoding="ascii")
    draft.replace(address_file)
    try:
        yield
    finally:
        address_file.unlink(missing_ok=True)
