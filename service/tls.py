"""TLS certificates of a server, reloaded from their files while it runs.

cert-manager or a mounted Secret replaces the files long before the certificates expire.
The server looks for changed files periodically. If new files cannot be used, it logs a
warning once and keeps the old certificates.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from service.settings import SettingsError

log = logging.getLogger(__name__)

#: Period of reloads; the kubelet itself updates a mounted Secret in 1 to 2 min.
RELOAD_PERIOD_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Paths of a server's certificate, its key, and its clients' authority."""

    certificate: Path
    key: Path
    #: authority of the clients' certificates; None: clients need no certificate
    client_ca: Path | None = None


class Certificates:
    """TLS context of one server; the files are the source of truth."""

    def __init__(self, files: Files) -> None:
        """Read the files.

        Raises:
            SettingsError: The certificates cannot be used.
        """
        self._files = files
        self._loaded_contents = self._read_files()
        try:
            self.context = _context(files)
        except (OSError, ssl.SSLError) as error:
            text = f"expected certificates, found {error}"
            raise SettingsError([f"--tls-certificate: {text}"]) from error

    async def run(self, period_s: float = RELOAD_PERIOD_S) -> NoReturn:
        """Reload changed files until cancelled."""
        while True:
            await asyncio.sleep(period_s)
            await self.reload_changed()

    async def reload_changed(self) -> None:
        """Load the files if they have changed; later connections use them."""
        contents = await asyncio.to_thread(self._read_files)
        if contents == self._loaded_contents:
            return
        self._loaded_contents = contents
        try:
            # certificate and key must match before either is used
            _context(self._files)
            _load(self.context, self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("certificates not taken up", extra={"error": str(error)})
        else:
            log.info("certificates taken up")

    def _read_files(self) -> tuple[bytes, ...]:
        return tuple(
            path.read_bytes() if path.exists() else b""
            for path in (
                self._files.certificate,
                self._files.key,
                self._files.client_ca,
            )
            if path is not None
        )


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, files)
    return context


def _load(context: ssl.SSLContext, files: Files) -> None:
    context.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        # An authority that is removed from the file is trusted until the next start.
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
