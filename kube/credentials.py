"""Where is the API server, and how do we show who we are.

Three ways: in a pod (service account, read by ourselves), a kubeconfig (read by the
official `kubernetes` package, imported only then, since it costs 20 MiB and 0.3 s),
or a URL. Token and CA files are read again each minute, because the kubelet rotates
them under a running process.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from yarl import URL

from kube.errors import CredentialsError
from kube.exec_credentials import PluginTokens
from scheduler_core.wire.shown import shown
from service.settings import SettingsError

#: How long a token or CA is used before its file is read again. client-go: one minute.
REREAD_S = 60.0
#: Tokens are about 1 kB and CA bundles some 10 kB; more is not such a file.
_FILE_BYTES = 1 << 20
#: The most of the official client's own words that are repeated. Unit: characters.
_SAID = 500

T = TypeVar("T")


class Rereading(Generic[T]):
    """The meaning of a small file, read again each minute; the last good one stays."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file for the first time.

        Raises:
            CredentialsError: It cannot be read or makes no sense.
        """
        self._path = path
        self._parse = parse
        self._clock = clock
        self._raw = self._read()
        self._value = self._parsed(self._raw)
        self._read_at = clock()

    def value(self) -> T:
        """Return the present meaning; reads the file when a minute has passed."""
        if self._clock() - self._read_at >= REREAD_S:
            self._read_at = self._clock()
            self._refresh()
        return self._value

    def expire(self) -> None:
        """Have the next `value` read the file: the server refused what we showed."""
        self._read_at = float("-inf")

    def _refresh(self) -> None:
        try:
            raw = self._read()
            if raw != self._raw:
                self._value, self._raw = self._parsed(raw), raw
        except CredentialsError:
            # A file in the middle of its rotation: what we have is good for a while
            # yet, and if it is not, the server's 401 is counted and shown.
            return

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_FILE_BYTES)
        except OSError as error:
            text = f"{self._path}: expected a readable file, found {error.strerror}"
            raise CredentialsError(text) from error

    def _parsed(self, raw: bytes) -> T:
        try:
            return self._parse(raw)
        except ValueError as error:
            raise CredentialsError(f"{self._path}: {error}") from error


class TokenSource(Protocol):
    """Whatever can produce the present bearer token."""

    async def token(self) -> str:
        """Return the token; empty for none."""

    def expire(self) -> None:
        """Produce a fresh one next time."""


class Credentials:
    """One API server, its certificate authority, and the token to show it."""

    def __init__(
        self,
        server: str,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        tokens: TokenSource | None = None,
        server_name: str | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            server: Base URL without a slash at its end.
            tls: The present TLS context; None for plain http or the system's trust.
            tokens: Who has the bearer token; None to show none.
            server_name: The name in the server's certificate, when it is not that of
                the URL.
        """
        self.server = server
        self.server_name = server_name
        self._tls = tls
        self._tokens = tokens

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """The present TLS context; None for plain http or the system's trust."""
        return self._tls() if self._tls else None

    async def token(self) -> str:
        """Return the present bearer token; empty for none."""
        return await self._tokens.token() if self._tokens else ""

    def expire(self) -> None:
        """Have the next `token` fetch a fresh one: the server answered 401."""
        if self._tokens:
            self._tokens.expire()


class FileTokens:
    """A bearer token in a file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the token for the first time.

        Raises:
            CredentialsError: There is none.
        """
        self._file = Rereading(path, _parse_token, clock=clock)

    async def token(self) -> str:
        """Return the present token."""
        return self._file.value()

    def expire(self) -> None:
        """Read the file next time."""
        self._file.expire()


def in_cluster(
    service_account_dir: Path,
    environ: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Return the credentials that Kubernetes gives every pod.

    Args:
        service_account_dir: Folder with `token` and `ca.crt`.
        environ: The process's environment, for KUBERNETES_SERVICE_HOST and _PORT.
        clock: Monotonic seconds.

    Raises:
        CredentialsError: Something is missing; names all that is.
    """
    problems = [
        f"environment {name}: expected the API server's address, found nothing"
        " (outside a pod give a kubeconfig or the server's URL)"
        for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        if not environ.get(name)
    ]
    tokens = _collected(
        problems, lambda: FileTokens(service_account_dir / "token", clock=clock)
    )
    authority = _collected(
        problems,
        lambda: Rereading(service_account_dir / "ca.crt", _parse_ca, clock=clock),
    )
    if problems or tokens is None or authority is None:
        raise CredentialsError("\n".join(problems))
    host = environ["KUBERNETES_SERVICE_HOST"]
    host = f"[{host}]" if ":" in host else host
    server = f"https://{host}:{environ['KUBERNETES_SERVICE_PORT']}"
    if not _is_url(server):
        text = "expected the API server's address in KUBERNETES_SERVICE_HOST and _PORT"
        raise CredentialsError(f"environment: {text}, found {shown(server)}")
    return Credentials(server, tls=authority.value, tokens=tokens)


def direct(
    server_url: str,
    service_account_dir: Path | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Credentials:
    """Return credentials for a URL: a sandbox, a proxy, a test, a kubelet.

    Args:
        server_url: http or https; nothing but the base.
        service_account_dir: Folder with `token` and, for https with an authority of
            its own, `ca.crt`; None to show no token.
        clock: Monotonic seconds.

    Raises:
        CredentialsError: The URL is none, or the folder has no token.
    """
    server = server_url.rstrip("/")
    if not _is_url(server):
        found = shown(server_url)
        text = f"API server: expected http://… or https://…, found {found}"
        raise CredentialsError(text)
    if service_account_dir is None:
        return Credentials(server)
    tokens = FileTokens(service_account_dir / "token", clock=clock)
    authority = service_account_dir / "ca.crt"
    if server.startswith("http://") or not authority.exists():
        return Credentials(server, tokens=tokens)
    tls = Rereading(authority, _parse_ca, clock=clock).value
    return Credentials(server, tls=tls, tokens=tokens)


def kubeconfig(path: Path | None, context: str | None = None) -> Credentials:
    """Return the credentials of a kubeconfig, as the official client reads it.

    Args:
        path: The file; None for $KUBECONFIG or ~/.kube/config.
        context: The context's name; None for the current one.

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
        config.load_kube_config(  # type: ignore[no-untyped-call]  # no types there
            config_file=None if path is None else str(path),
            context=context,
            client_configuration=configuration,
        )
        secure = configuration.host.startswith("https://")
        context_of_tls = _tls_of(configuration) if secure else None
    except Exception as error:  # a wrong file makes that package throw anything
        # it repeats what the file says, half a character too
        said = str(error)[:_SAID].encode(errors="backslashreplace").decode()
        found = f"{type(error).__name__}: {said}"
        text = f"kubeconfig {path or ''}: expected one that can be used, found {found}"
        raise CredentialsError(text) from error
    return Credentials(
        configuration.host.rstrip("/"),
        tls=None if context_of_tls is None else lambda: context_of_tls,
        tokens=PluginTokens(configuration),
        server_name=configuration.tls_server_name or None,
    )


def given(
    *,
    kubeconfig_file: Path | None,
    api_server: str,
    service_account_dir: Path,
    environ: Mapping[str, str],
) -> Credentials:
    """Return the credentials that a program's settings name.

    Args:
        kubeconfig_file: Comes first; None for none.
        api_server: A URL; empty for that of the cluster we run in.
        service_account_dir: Folder with `token` and `ca.crt`.
        environ: The process's environment.

    Raises:
        SettingsError: Something is missing; has all of it.
    """
    try:
        if kubeconfig_file is not None:
            return kubeconfig(kubeconfig_file)
        if api_server:
            return direct(api_server, service_account_dir)
        return in_cluster(service_account_dir, environ)
    except CredentialsError as error:
        raise SettingsError(str(error).splitlines()) from error


def _is_url(server: str) -> bool:
    if not server.startswith(("http://", "https://")) or not server.isprintable():
        return False
    try:
        url = URL(server)  # refuses a port that is none
    except ValueError:
        return False
    return bool(url.host)


def _tls_of(configuration: Any) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:  # the kubeconfig's insecure-skip-tls-verify
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        made.load_cert_chain(configuration.cert_file, configuration.key_file)
    return made


def _collected(problems: list[str], make: Callable[[], T]) -> T | None:
    """Return what `make` makes, or None after adding its complaint to `problems`."""
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
    if not raw.strip():  # of nothing, ssl would trust all that the system trusts
        raise ValueError("expected PEM certificates, found an empty file")
    try:
        return ssl.create_default_context(cadata=raw.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        text = f"expected PEM certificates, found {len(raw)} bytes that are not"
        raise ValueError(text) from error
