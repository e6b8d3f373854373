"""A server over TLS: which certificate it shows, and whom it lets in."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from service.endpoints import Endpoints
from service.settings import SettingsError
from service.tls import Certificates, Files
from tests.service import authorities


@asynccontextmanager
async def served(certificates: Certificates) -> AsyncIterator[str]:
    endpoints = Endpoints(CollectorRegistry(), lambda: None)
    async with endpoints.serving("127.0.0.1:0", certificates=certificates) as address:
        yield f"https://{address}/healthz"


async def ask(url: str, trusted: Path, own: tuple[Path, Path] | None = None) -> str:
    context = ssl.create_default_context(cafile=str(trusted))
    if own is not None:
        context.load_cert_chain(*own)
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=context) as answer,
    ):
        return await answer.text()


async def test_a_renewed_certificate_is_shown_from_then_on(tmp_path: Path) -> None:
    first, key = authorities.make(tmp_path, "first")
    second, second_key = authorities.make(tmp_path, "second")
    trusted = tmp_path / "trusted"
    trusted.write_bytes(first.read_bytes())
    certificates = Certificates(Files(certificate=first, key=key))
    async with served(certificates) as url:
        assert await ask(url, trusted) == "ok\n"

        first.write_bytes(second.read_bytes())
        await certificates.reload_changed()  # its key is not there yet: nothing changes
        assert await ask(url, trusted) == "ok\n"

        key.write_bytes(second_key.read_bytes())
        await certificates.reload_changed()
        assert await ask(url, second) == "ok\n"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(url, trusted)


async def test_who_shows_no_certificate_is_not_let_in(tmp_path: Path) -> None:
    ours, key = authorities.make(tmp_path, "ours")
    scheduler = authorities.make(tmp_path, "scheduler")
    stranger = authorities.make(tmp_path, "stranger")
    files = Files(certificate=ours, key=key, client_ca=scheduler[0])
    async with served(Certificates(files)) as url:
        assert await ask(url, ours, scheduler) == "ok\n"
        for own in (None, stranger):
            with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
                await ask(url, ours, own)


def test_what_is_no_certificate_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("nonsense")

    with pytest.raises(SettingsError, match="--tls-certificate: expected"):
        Certificates(Files(certificate=tmp_path / "none", key=tmp_path / "absent"))
