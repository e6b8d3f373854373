"""By which certificate a server is known, and whom it lets in; renewed while it runs.

Certificates are replaced in their files long before they run out (cert-manager, a
mounted Secret). The files are looked at; what cannot be used is said once, and the one
before stays.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from service.settings import SettingsError

log = logging.getLogger(__name__)

#: The kubelet brings a changed Secret to a pod within a minute or two.
LOOK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where certificates are."""

    certificate: Path
    key: Path
    #: whose client certificates are let in; None: whoever comes
    client_ca: Path | None = None


class Certificates:
    """The certificates of one server. Their source of truth is the files."""

    def __init__(self, files: Files) -> None:
        """Read them.

        Raises:
            SettingsError: they cannot be used.
        """
        self._files = files
        self._read = self._contents()
        try:
            self.context = _context(files)
        except (OSError, ssl.SSLError) as error:
            text = f"expected certificates, found {error}"
            raise SettingsError([f"--tls-certificate: {text}"]) from error

    async def run(self, look_s: float = LOOK_S) -> NoReturn:
        """Take up changed files until cancelled."""
        while True:
            await asyncio.sleep(look_s)
            await self.look()

    async def look(self) -> None:
        """Take up what has changed: connections that are made from now on meet it."""
        found = await asyncio.to_thread(self._contents)
        if found == self._read:
            return
        self._read = found
        try:
            _context(self._files)  # both files of a pair must fit before either counts
            _load(self.context, self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("certificates not taken up", extra={"error": str(error)})
        else:
            log.info("certificates taken up")

    def _contents(self) -> tuple[bytes, ...]:
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
        # An authority that is taken out of the file is let in until the next start.
        context.load_verify_locations(files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
