"""One HTTP session with the API server: requests, and streams for watches.

The session is kept alive and shared by all tasks. No lock is held over a request; each
has a deadline and a bound on what it may bring back. Nothing is retried here: the
caller knows whether a second try does harm.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from kube.credentials import Credentials
from kube.errors import (
    KubeError,
    MalformedError,
    SilentError,
    UnreachableError,
    api_error,
)

JSON = "application/json"
#: Only the metadata of what is listed; all of it from a server that cannot.
METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
MERGE_PATCH = "application/merge-patch+json"
#: As a merge patch, but lists of Kubernetes' own kinds merge by a key.
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
#: A list page of 500 large pods is some 10 MB; beyond this something is wrong.
LARGEST_ANSWER_BYTES = 256 << 20
#: Enough of an error's body to read its Status.
_ERROR_BYTES = 64 << 10
_CONNECT_S = 5.0

#: (verb, resource, code) of each request that ended; code 0: no answer.
Count = Callable[[str, str, int], None]


class Stream:
    """The body of a watch, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        """Read from an answer whose status is good.

        Args:
            response: The open answer.
            what: The request, for messages.
        """
        self._response = response
        self._what = what

    async def read(self, idle_s: float) -> bytes:
        """Return the next bytes; empty when the server has ended the stream.

        Args:
            idle_s: How long silence is believed.

        Raises:
            SilentError: Nothing came for `idle_s`.
            UnreachableError: The connection broke.
        """
        with _reaching(self._what):
            try:
                async with asyncio.timeout(idle_s):
                    return await self._response.content.readany()
            except TimeoutError as error:
                text = f"{self._what}: silent for {idle_s:g} s"
                raise SilentError(text) from error


class Client:
    """The one session with one API server; use as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str = "ascend-affinity",
        count: Count | None = None,
        connector: Callable[[], aiohttp.BaseConnector] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            credentials: Server, authority, token.
            user_agent: Our name in the server's audit log.
            count: Told (verb, resource, code) of each request, for metrics.
            connector: Makes what opens connections; TCP by default.
        """
        self._credentials = credentials
        self._user_agent = user_agent
        self._count = count or _count_nothing
        self._connector = connector or _tcp
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session; connections come with the first request."""
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Deadlines are set per request; aiohttp's own would end every watch.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers={
                "Accept": JSON,
                "Accept-Encoding": "identity",  # our bounds count what is received
                "User-Agent": self._user_agent,
            },
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(  # noqa: PLR0913  # the parts of a request
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 10.0,
    ) -> bytes:
        """Send one request and return the body of its answer.

        Args:
            method: GET, POST, PUT, PATCH, DELETE.
            path: From the server's root, each name quoted.
            params: The query; values are encoded here.
            body: What to send; None for nothing.
            content_type: What `body` is.
            accept: The forms of answers that will do.
            timeout_s: For everything, from connecting to the last byte.

        Raises:
            ApiError: The server said no; the subclass says how.
            UnreachableError: No answer; the effect is unknown.
            MalformedError: The answer is larger than any should be.
        """
        what = f"{method} {path}"
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        with self._counting(method, path) as seen, _reaching(what):
            async with asyncio.timeout(timeout_s):
                async with await self._send(
                    method, path, params=params, body=body, headers=headers
                ) as response:
                    seen.append(response.status)
                    return await self._answer(response, what)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], start_s: float = 10.0
    ) -> AsyncIterator[Stream]:
        """Open a GET whose body is read bit by bit.

        Args:
            path: From the server's root.
            params: The query.
            start_s: Deadline for the answer's head.

        Raises:
            ApiError: The server said no.
            UnreachableError: No answer.
        """
        what = f"WATCH {path}"
        with self._counting("WATCH", path) as seen, _reaching(what):
            async with asyncio.timeout(start_s):
                response = await self._send(
                    "GET", path, params=params, body=None, headers={}
                )
                seen.append(response.status)
                if response.status >= 400:
                    async with response:
                        await self._answer(response, what)
        try:
            yield Stream(response, what)
        finally:
            response.close()  # not released: a watch's connection has no end to reuse

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        body: bytes | None,
        headers: dict[str, str],
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with`")
        token = await self._credentials.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = URL(self._credentials.server + path, encoded=True)
        return await self._session.request(
            method,
            url,
            params=params,
            data=body,
            headers=headers,
            ssl=self._credentials.ssl or True,
            server_hostname=self._credentials.server_name,
            allow_redirects=False,  # a token goes to the server it is for, or nowhere
        )

    async def _answer(self, response: aiohttp.ClientResponse, what: str) -> bytes:
        if response.status < 300:
            return await _bounded(response, LARGEST_ANSWER_BYTES, what)
        if response.status == 401:
            self._credentials.expire()
        raise api_error(
            response.status,
            await response.content.read(_ERROR_BYTES),
            what=what,
            retry_after_s=retry_after_s(response.headers.get("Retry-After")),
        )

    @contextmanager
    def _counting(self, verb: str, path: str) -> Iterator[list[int]]:
        """Count the request when it ends; the status goes into the yielded list."""
        seen: list[int] = []
        try:
            yield seen
        finally:
            self._count(verb, resource_of(path), seen[-1] if seen else 0)


def object_path(resource: str, name: str, *, namespace: str = "") -> str:
    """Return the path of one core/v1 object, its names quoted.

    Args:
        resource: Plural, such as `pods`.
        name: The object's name; empty for the collection.
        namespace: Empty for a resource without namespaces, or for all of them.
    """
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    tail = f"/{quote(name, safe='')}" if name else ""
    return f"/api/v1{scope}/{resource}{tail}"


def resource_of(path: str) -> str:
    """Return the resource that a path names: a metric label, so never an object's name.

    Args:
        path: Such as `/api/v1/namespaces/a/pods/b/binding`, here `pods/binding`.
    """
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join(parts[0::2]) or "other"


def retry_after_s(header: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 without one we understand.

    The API server sends whole seconds; the date form is a proxy's and not followed.
    """
    if header is None or not header.isascii() or not header.isdigit():
        return 0.0
    return float(header[:6])


async def _bounded(
    response: aiohttp.ClientResponse, limit_bytes: int, what: str
) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > limit_bytes:
            raise MalformedError(f"{what}: more than {limit_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def _reaching(what: str) -> Iterator[None]:
    """Turn what networks throw into our own error."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        raise UnreachableError(f"{what}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        text = f"{what}: {type(error).__name__}: {error}"
        raise UnreachableError(text) from error


def _tcp() -> aiohttp.BaseConnector:
    return aiohttp.TCPConnector(limit=32, keepalive_timeout=60)


def _count_nothing(_verb: str, _resource: str, _code: int) -> None:
    """Count nothing."""
