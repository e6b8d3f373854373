"""What a process tells whoever asks over HTTP: alive, ready, metrics, and its own.

`/healthz` answers as long as the loop turns. `/readyz` answers 503 with the reason
while the process is not ready. `/metrics` is Prometheus' text format.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from service.quote import shown
from service.settings import SettingsError
from service.timeouts import PATIENCE_S, Patience
from service.tls import Certificates

#: None when ready, else the reason why not.
Ready = Callable[[], str | None]
#: A kube-scheduler sends 5,000 node names in some 250 kB, or whole nodes in 60 MB.
LARGEST_REQUEST_BYTES = 64 << 20
_STOP_S = 5.0
_PORT = re.compile("[0-9]{1,5}")


class Endpoints:
    """One HTTP server of a process; its routes are fixed when it is made."""

    def __init__(
        self,
        registry: CollectorRegistry,
        ready: Ready,
        *,
        routes: Iterable[web.RouteDef] = (),
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Listen nowhere yet.

        Args:
            registry: What `/metrics` shows.
            ready: Asked at each `/readyz`.
            routes: What this process serves besides.
            patience_s: How long callers may take to say what they want.
        """
        self.patience = Patience(patience_s)
        self._registry = registry
        self._ready = ready
        self._app = web.Application(
            client_max_size=LARGEST_REQUEST_BYTES, middlewares=[self.patience.watch]
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
        """Serve while the context lasts; yields the address as `host:port`.

        Args:
            listen: `host:port`; port 0 takes a free one.
            address_file: Gets the address once we listen, and is removed at the end.
            certificates: For TLS; None: no TLS.

        Raises:
            SettingsError: `listen` is no address, or is taken.
        """
        host, port = parse_listen(listen)
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=_STOP_S)
        await runner.setup()
        tasks: list[asyncio.Task[NoReturn]] = []
        try:
            context = certificates.context if certificates is not None else None
            site = web.TCPSite(runner, host, port, ssl_context=context)
            try:
                await site.start()
            except OSError as error:
                text = f"listen {listen}: expected a free address, found {error}"
                raise SettingsError([text]) from error
            tasks += _watching(runner, self.patience, certificates)
            address = f"{host}:{runner.addresses[0][1]}"
            with _announced(address, address_file):
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


def _watching(
    runner: web.AppRunner, patience: Patience, certificates: Certificates | None
) -> list[asyncio.Task[NoReturn]]:
    """Begin what goes on as long as a server listens."""
    loop = asyncio.get_running_loop()
    found: list[asyncio.Task[NoReturn]] = []
    if runner.server is not None:
        found.append(loop.create_task(patience.run(runner.server)))
    if certificates is not None:
        found.append(loop.create_task(certificates.run()))
    return found


def parse_listen(listen: str) -> tuple[str, int]:
    """Return host and port of `host:port`; the host may be `[v6]`.

    Args:
        listen: As a person writes it; `:8080` is every address.

    Raises:
        SettingsError: It is no such thing.
    """
    host, colon, port = listen.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        found = shown(listen)
        text = f"listen: expected host:port with a port up to 65535, found {found}"
        raise SettingsError([text])
    return bare or "0.0.0.0", int(port)  # noqa: S104  # an empty host asks for it


@contextmanager
def _announced(address: str, address_file: Path | None) -> Iterator[None]:
    """Have the address in a file while the context lasts, never half written."""
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
