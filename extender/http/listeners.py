"""Listeners on two addresses: one for schedulers, one for clients that only read.

Whoever reaches the schedulers' address can send bind requests. So clients that only
read (readers) get a second address, which has no filter, preempt or bind.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.settings import Settings
from service.endpoints import Endpoints
from service.settings import SettingsError
from service.tls import Certificates, Files

#: Path prefix of endpoints that read and decide nothing.
_READ_PREFIX = "/v1/"


@asynccontextmanager
async def serve(
    settings: Settings,
    registry: CollectorRegistry,
    why_not_ready: Callable[[], str | None],
    routes: Iterable[web.RouteDef],
) -> AsyncIterator[tuple[str, str]]:
    """Serve HTTP for schedulers and for readers until the `async with` block ends.

    Readers are clients that only read.

    Args:
        settings: Addresses and certificates.
        registry: Metrics that `/metrics` shows.
        why_not_ready: Returns why the extender is not ready, or None if it is ready.
            Called at each `/readyz`.
        routes: All routes. The readers' address serves only those under `/v1/`.

    Yields:
        The schedulers' address and the readers' address. The readers' address is "" if
        none is configured.

    Raises:
        SettingsError: An address or a certificate cannot be used.
    """
    routes = tuple(routes)
    for_schedulers, for_readers = _certificates(settings)
    async with AsyncExitStack() as stack:
        read_address = ""
        if settings.read_listen:
            readable = readable_routes(routes)
            reader_endpoints = Endpoints(registry, why_not_ready, routes=readable)
            read_address = await stack.enter_async_context(
                reader_endpoints.serving(settings.read_listen, certificates=for_readers)
            )
        scheduler_endpoints = Endpoints(registry, why_not_ready, routes=routes)
        address = await stack.enter_async_context(
            scheduler_endpoints.serving(
                settings.listen, settings.address_file, certificates=for_schedulers
            )
        )
        yield address, read_address


def readable_routes(routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
    """Return those of `routes` that only read."""
    return [route for route in routes if route.path.startswith(_READ_PREFIX)]


def _certificates(
    settings: Settings,
) -> tuple[Certificates | None, Certificates | None]:
    """Return TLS certificates for the schedulers' address and for the readers' address.

    Both are None without TLS. If a client CA is configured, only the schedulers'
    address asks for client certificates.

    Raises:
        SettingsError: A TLS setting is present, but certificate or key is missing. Or a
            certificate cannot be used.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        if certificate or key or settings.tls_client_ca:
            raise SettingsError(
                ["--tls-certificate and --tls-key: expected both, found one or none"]
            )
        return None, None
    strict = Files(certificate=certificate, key=key, client_ca=settings.tls_client_ca)
    for_all = Files(certificate=certificate, key=key)
    return Certificates(strict), Certificates(for_all)
