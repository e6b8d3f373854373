"""Credentials for the API server: URL, certificate authority, token.

A program gets them from its pod (service account), from a kubeconfig, or from a URL.
The `kubernetes` package reads kubeconfigs. It costs 20 MiB and 0.3 s, so it is imported
only for them. Token and CA files are read again each minute, because the kubelet
rotates them while the process runs.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from yarl import URL

from kube.errors import CredentialsError
from kube.exec_credentials import PluginTokens
from scheduler_core.wire.quote import quote_value
from service.settings import SettingsError

#: Period after which a token or CA file is read again; client-go: one minute.
REREAD_S = 60.0
#: Bytes of a file that are read; tokens have about 1 kB, CA bundles some 10 kB.
_FILE_BYTES = 1 << 20
#: Longest part of the official client's message that is repeated; characters.
_MESSAGE_CHARACTERS = 500

T = TypeVar("T")


class RereadFile(Generic[T]):
    """Parsed content of a small file, read again each minute.

    If a later read fails, the last good content stays.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file for the first time.

        Raises:
            CredentialsError: The file cannot be read or parsed.
        """
        self._path = path
        self._parse = parse
        self._clock = clock
        self._raw = self._read()
        self._value = self._parse_raw(self._raw)
        self._read_at_s = clock()

    def value(self) -> T:
        """Return the content; read the file first if a minute has passed."""
        if self._clock() - self._read_at_s >= REREAD_S:
            self._read_at_s = self._clock()
            self._refresh()
        return self._value

    def expire(self) -> None:
        """Make the next `value` read the file, after the server refused its content."""
        self._read_at_s = float("-inf")

    def _refresh(self) -> None:
        try:
            raw = self._read()
            if raw != self._raw:
                self._value, self._raw = self._parse_raw(raw), raw
        except CredentialsError:
            # The file may be in the middle of its rotation. The old content is valid
            # for a while; if not, metrics show the server's 401.
            return

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_FILE_BYTES)
        except OSError as error:
            text = f"{self._path}: expected a readable file, found {error.strerror}"
            raise CredentialsError(text) from error

    def _parse_raw(self, raw: bytes) -> T:
        try:
            return self._parse(raw)
        except ValueError as error:
            raise CredentialsError(f"{self._path}: {error}") from error


class TokenSource(Protocol):
    """Source of the current bearer token."""

    async def token(self) -> str:
        """Return the token; empty for none."""

    def expire(self) -> None:
        """Make the next `token` get a fresh one."""


class Credentials:
    """URL of one API server, its certificate authority, and a source of tokens."""

    def __init__(
        self,
        server: str,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        tokens: TokenSource | None = None,
        server_name: str | None = None,
    ) -> None:
        """Store the parts.

        Args:
            server: Base URL without a slash at its end.
            tls: Returns the current TLS context; None for http or the system's trust.
            tokens: Source of bearer tokens; None to send none.
            server_name: Name in the server's certificate, if it differs from the URL's.
        """
        self.server = server
        self.server_name = server_name
        self._tls = tls
        self._tokens = tokens

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """Current TLS context; None for plain http or the system's trust."""
        return self._tls() if self._tls else None

    async def token(self) -> str:
        """Return the current bearer token; empty for none."""
        return await self._tokens.token() if self._tokens else ""

    def expire(self) -> None:
        """Make the next `token` get a fresh one, after the server answered 401."""
        if self._tokens:
            self._tokens.expire()


class FileTokens:
    """Bearer token in a file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the token for the first time.

        Raises:
            CredentialsError: The file has no token.
        """
        self._file = RereadFile(path, _parse_token, clock=clock)

    async def token(self) -> str:
        """Return the current token."""
        return self._file.value()

    def expire(self) -> None:
        """Make the next `token` read the file."""
        self._file.expire()


def in_cluster(
    service_account_dir: Path,
    environ: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Return the credentials of the pod's service account.

    Args:
        service_account_dir: Folder with `token` and `ca.crt`.
        environ: Environment with KUBERNETES_SERVICE_HOST and _PORT.
        clock: Monotonic seconds.

    Raises:
        CredentialsError: At least one part is missing; names all that are.
    """
    problems = [
        f"environment {name}: expected the API server's address, found nothing"
        " (outside a pod give a kubeconfig or the server's URL)"
        for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        if not environ.get(name)
    ]
    tokens = _make_or_report(
        problems, lambda: FileTokens(service_account_dir / "token", clock=clock)
    )
    authority = _make_or_report(
        problems,
        lambda: RereadFile(service_account_dir / "ca.crt", _parse_ca, clock=clock),
    )
    if problems or tokens is None or authority is None:
        raise CredentialsError("\n".join(problems))
    host = environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    server = f"https://{host}:{environ['KUBERNETES_SERVICE_PORT']}"
    if not _is_url(server):
        text = "expected the API server's address in KUBERNETES_SERVICE_HOST and _PORT"
        raise CredentialsError(f"environment: {text}, found {quote_value(server)}")
    return Credentials(server, tls=authority.value, tokens=tokens)


def from_url(
    server_url: str,
    service_account_dir: Path | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Return credentials for a base URL: of a sandbox, a proxy, a test or a kubelet.

    Args:
        server_url: http or https.
        service_account_dir: Folder with `token` and, for https with its own
            authority, `ca.crt`; None to send no token.
        clock: Monotonic seconds.

    Raises:
        CredentialsError: The URL is malformed, or the folder has no token.
    """
    server = server_url.rstrip("/")
    if not _is_url(server):
        value = quote_value(server_url)
        text = f"API server: expected http://… or https://…, found {value}"
        raise CredentialsError(text)
    if service_account_dir is None:
        return Credentials(server)
    tokens = FileTokens(service_account_dir / "token", clock=clock)
    authority = service_account_dir / "ca.crt"
    if server.startswith("http://") or not authority.exists():
        return Credentials(server, tokens=tokens)
    tls = RereadFile(authority, _parse_ca, clock=clock).value
    return Credentials(server, tls=tls, tokens=tokens)


def kubeconfig(path: Path) -> Credentials:
    """Return the credentials of a kubeconfig, read by the official client.

    Raises:
        CredentialsError: The package is not installed, or it refuses the file.
    """
    try:
        from kubernetes import client, config  # noqa: PLC0415  # 20 MiB, only if asked
    except ImportError as error:
        text = "a kubeconfig needs the extra: pip install 'ascend-affinity[kubeconfig]'"
        raise CredentialsError(text) from error
    configuration = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]  # has no types
            config_file=str(path),
            client_configuration=configuration,
        )
        is_https = configuration.host.startswith("https://")
        context_of_tls = _tls_of(configuration) if is_https else None
    except Exception as error:  # for a wrong file the package raises anything
        # the message repeats parts of the file, even half a character
        message = (
            str(error)[:_MESSAGE_CHARACTERS].encode(errors="backslashreplace").decode()
        )
        problem = f"{type(error).__name__}: {message}"
        text = f"kubeconfig {path}: expected one that can be used, found {problem}"
        raise CredentialsError(text) from error
    return Credentials(
        configuration.host.rstrip("/"),
        tls=None if context_of_tls is None else lambda: context_of_tls,
        tokens=PluginTokens(configuration),
        server_name=configuration.tls_server_name or None,
    )


def from_settings(
    *,
    kubeconfig_file: Path | None,
    api_server: str,
    service_account_dir: Path,
    environ: Mapping[str, str],
) -> Credentials:
    """Return the credentials that a program's settings name.

    Args:
        kubeconfig_file: Takes precedence; None for none.
        api_server: URL; empty for the API server of this cluster.
        service_account_dir: Folder with `token` and `ca.crt`.
        environ: Environment of the process.

    Raises:
        SettingsError: At least one part is missing; names all that are.
    """
    try:
        if kubeconfig_file is not None:
            return kubeconfig(kubeconfig_file)
        if api_server:
            return from_url(api_server, service_account_dir)
        return in_cluster(service_account_dir, environ)
    except CredentialsError as error:
        raise SettingsError(str(error).splitlines()) from error


def _is_url(server: str) -> bool:
    if not server.startswith(("http://", "https://")) or not server.isprintable():
        return False
    try:
        url = URL(server)  # raises for a malformed port
    except ValueError:
        return False
    return bool(url.host)


def _tls_of(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:  # the kubeconfig's insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _make_or_report(problems: list[str], make: Callable[[], T]) -> T | None:
    """Return the result of `make`, or None after adding its error to `problems`."""
    try:
        return make()
    except CredentialsError as error:
        problems.append(str(error))
        return None


def _parse_token(raw: bytes) -> str:
    token = raw.decode("ascii", errors="replace").strip()
    if not token or not token.isprintable() or "\ufffd" in token:
        raise ValueError(
            f"expected a bearer token, found {len(raw)} bytes that are not"
        )
    return token


def _parse_ca(raw: bytes) -> ssl.SSLContext:
    if not raw.strip():  # ssl would trust the system's authorities
        raise ValueError("expected PEM certificates, found an empty file")
    try:
        return ssl.create_default_context(cadata=raw.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        text = f"expected PEM certificates, found {len(raw)} bytes that are not"
        raise ValueError(text) from error
