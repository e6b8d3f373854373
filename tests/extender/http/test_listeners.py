"""Who may read gets an address where nothing is decided."""

import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.http import listeners
from extender.settings import Settings
from service.settings import SettingsError, load
from tests.service import authorities


async def answer(_request: web.Request) -> web.Response:
    return web.Response(text="answered")


ROUTES = [web.post("/bind", answer), web.get("/v1/explain/{namespace}/{name}", answer)]
BOTH = ("--listen", "127.0.0.1:0", "--read-listen", "127.0.0.1:0")
EXPLAIN = "/v1/explain/default/p"


def serving(
    *arguments: str | Path,
) -> AbstractAsyncContextManager[tuple[str, str]]:
    """Serve the routes as a program with these arguments does: both addresses."""
    told = load(Settings, list(map(str, arguments)), {})
    return listeners.serve(told, CollectorRegistry(), lambda: None, ROUTES)


async def statuses(url: str, context: ssl.SSLContext | None = None) -> list[int]:
    """Of a bind, of an explanation, and of the question whether it is ready."""
    found = []
    async with aiohttp.ClientSession(url) as session:
        for method, path in (("POST", "/bind"), ("GET", EXPLAIN), ("GET", "/readyz")):
            async with session.request(method, path, ssl=context or True) as said:
                found.append(said.status)
    return found


async def test_at_the_readers_address_nothing_is_decided() -> None:
    async with serving(*BOTH) as (address, read):
        assert await statuses(f"http://{address}") == [200, 200, 200]
        assert await statuses(f"http://{read}") == [404, 200, 200]


async def test_only_at_the_schedulers_address_a_certificate_is_asked_for(
    tmp_path: Path,
) -> None:
    ours, key = authorities.make(tmp_path, "ours")
    scheduler = authorities.make(tmp_path, "scheduler")
    told = ("--tls-certificate", ours, "--tls-key", key)
    anybody = ssl.create_default_context(cafile=str(ours))
    known = ssl.create_default_context(cafile=str(ours))
    known.load_cert_chain(*scheduler)

    async with serving(*BOTH, *told, "--tls-client-ca", scheduler[0]) as (
        address,
        read,
    ):
        assert await statuses(f"https://{address}", known) == [200, 200, 200]
        assert await statuses(f"https://{read}", anybody) == [404, 200, 200]
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await statuses(f"https://{address}", anybody)


async def test_half_of_what_tls_needs_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="--tls-certificate and --tls-key"):
        async with serving("--tls-client-ca", "/nowhere"):
            raise AssertionError("it serves without them")
