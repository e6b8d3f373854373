"""At which addresses the extender answers, and whom each lets in.

Who reaches the schedulers' address can have pods bound. Who wants to know why a pod
waits gets an address of its own, where nothing is decided.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.settings import Settings
from service.endpoints import Endpoints
from service.settings import SettingsError
from service.tls import Certificates, Files

#: What is read and decides nothing.
_READ = "/v1/"


@asynccontextmanager
async def open_for(
    settings: Settings,
    registry: CollectorRegistry,
    why_not_ready: Callable[[], str | None],
    routes: Iterable[web.RouteDef],
) -> AsyncIterator[tuple[str, str]]:
    """Serve while the context lasts; yields the schedulers' and the readers' address.

    Args:
        settings: Where, and by which certificates.
        registry: What `/metrics` shows.
        why_not_ready: Asked at each `/readyz`.
        routes: All that there is.

    Raises:
        SettingsError: An address or a certificate cannot be used.
    """
    routes = tuple(routes)
    strict, open_to_all = _certificates(settings)
    async with AsyncExitStack() as stack:
        read_address = ""
        if settings.read_listen:
            some = [route for route in routes if route.path.startswith(_READ)]
            reading = Endpoints(registry, why_not_ready, routes=some)
            read_address = await stack.enter_async_context(
                reading.serving(settings.read_listen, certificates=open_to_all)
            )
        deciding = Endpoints(registry, why_not_ready, routes=routes)
        address = await stack.enter_async_context(
            deciding.serving(
                settings.listen, settings.address_file, certificates=strict
            )
        )
        yield address, read_address


def _certificates(
    settings: Settings,
) -> tuple[Certificates | None, Certificates | None]:
    """Those of the schedulers' address, and those of the readers'."""
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
