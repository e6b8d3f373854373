"""HTTP session with the API server: requests, and streams for watches.

All tasks share the session and its connections. No lock is held during a request. Each
request has a deadline and a largest answer. The client retries nothing: only its caller
knows whether a second try does harm.
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
from kube.objects import encode

JSON = "application/json"
#: Accepts objects as metadata only, or whole from a server without that form.
METADATA = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
MERGE_PATCH = "application/merge-patch+json"
#: A merge patch that merges lists of built-in kinds by a key.
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
#: Largest answer; a list page of 500 large pods is some 10 MB.
LARGEST_ANSWER_BYTES = 256 << 20
#: Bytes of an error's body that are read, enough for its Status.
_ERROR_BYTES = 64 << 10
_CONNECT_S = 5.0
#: Connections of one session, which all its requests and watches share.
CONNECTIONS = 32

#: Called with (verb, resource, code) at the end of each request; code 0: no answer.
Count = Callable[[str, str, int], None]


class Stream:
    """Body of a watch, read as it arrives."""

    def __init__(self, response: aiohttp.ClientResponse, request_line: str) -> None:
        """Wrap a response with a status below 400.

        Args:
            response: Open response; the caller closes it.
            request_line: Method and path, for messages.
        """
        self._response = response
        self._request_line = request_line

    async def read(self, idle_s: float) -> bytes:
        """Return the next bytes; empty when the server has ended the stream.

        Args:
            idle_s: Longest silence; seconds.

        Raises:
            SilentError: Nothing arrived for `idle_s`.
            UnreachableError: The connection broke.
        """
        with _translate_errors(self._request_line):
            try:
                async with asyncio.timeout(idle_s):
                    return await self._response.content.readany()
            except TimeoutError as error:
                text = f"{self._request_line}: silent for {idle_s:g} s"
                raise SilentError(text) from error


class Client:
    """HTTP session with one API server, as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        user_agent: str = "ascend-affinity",
        count: Count | None = None,
        connector: Callable[[], aiohttp.BaseConnector] | None = None,
    ) -> None:
        """Store the settings; `async with` opens the session.

        Args:
            credentials: Server, authority, token.
            user_agent: Our name in the server's audit log.
            count: Called with (verb, resource, code) of each request, for metrics.
            connector: Makes the pool of connections; TCP by default.
        """
        self._credentials = credentials
        self._user_agent = user_agent
        self._count = count or (lambda _verb, _resource, _code: None)
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
                "Accept-Encoding": "identity",  # bounds count bytes on the wire
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

    @property
    def field_manager(self) -> str:
        """Name by which the API server knows who has set a field (`managedFields`).

        Source:
            Kubernetes v1.36.3, apiserver `endpoints/handlers`, `prefixFromUserAgent`.
        """
        return self._user_agent.partition("/")[0]

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
            path: Path from the server's root, each name quoted.
            params: Query parameters, not encoded.
            body: None for no body.
            content_type: Media type of `body`.
            accept: Media types for the answer.
            timeout_s: For the whole request, connecting included.

        Raises:
            ApiError: The server refused; the subclass says how.
            UnreachableError: No answer; the effect is unknown.
            MalformedError: The answer exceeds `LARGEST_ANSWER_BYTES`.
        """
        request_line = f"{method} {path}"
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        with (
            self._count_request(method, path) as statuses,
            _translate_errors(request_line),
        ):
            async with asyncio.timeout(timeout_s):
                async with await self._send(
                    method, path, params=params, body=body, headers=headers
                ) as response:
                    statuses.append(response.status)
                    return await self._read_answer(response, request_line)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], start_s: float = 10.0
    ) -> AsyncIterator[Stream]:
        """Open a GET whose body is read in parts; close it at the end.

        Args:
            path: Path from the server's root, each name quoted.
            params: Query parameters, not encoded.
            start_s: Deadline for the headers of the answer; seconds.

        Raises:
            ApiError: The server refused.
            UnreachableError: No answer.
        """
        request_line = f"WATCH {path}"
        with (
            self._count_request("WATCH", path) as statuses,
            _translate_errors(request_line),
        ):
            async with asyncio.timeout(start_s):
                response = await self._send(
                    "GET", path, params=params, body=None, headers={}
                )
                statuses.append(response.status)
                if response.status >= 400:
                    async with response:
                        await self._read_answer(response, request_line)
        try:
            yield Stream(response, request_line)
        finally:
            response.close()  # not released: a watch's connection cannot be reused

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
            allow_redirects=False,  # another server must not get the token
        )

    async def _read_answer(
        self, response: aiohttp.ClientResponse, request_line: str
    ) -> bytes:
        if response.status < 300:
            return await _read_bounded(response, LARGEST_ANSWER_BYTES, request_line)
        if response.status == 401:
            self._credentials.expire()
        raise api_error(
            response.status,
            await response.content.read(_ERROR_BYTES),
            request_line=request_line,
            retry_after_s=retry_after_s(response.headers.get("Retry-After")),
        )

    @contextmanager
    def _count_request(self, verb: str, path: str) -> Iterator[list[int]]:
        """Count the request when it ends; the caller appends its status to the list."""
        statuses: list[int] = []
        try:
            yield statuses
        finally:
            self._count(verb, resource_of(path), statuses[-1] if statuses else 0)


async def send_patch(
    client: Client,
    path: str,
    changes: object,
    *,
    content_type: str = MERGE_PATCH,
    timeout_s: float = 10.0,
) -> bytes:
    """Patch an object and return the body of the answer; errors as of `request`.

    Args:
        client: An open client.
        path: Path of the object.
        changes: Value of the patch, sent as JSON.
        content_type: Media type of the patch.
        timeout_s: For the whole request.
    """
    return await client.request(
        "PATCH",
        path,
        body=encode(changes),
        content_type=content_type,
        timeout_s=timeout_s,
    )


def object_path(
    resource: str, name: str, *, namespace: str = "", group: str = ""
) -> str:
    """Return the path of an object or collection, its names quoted.

    Args:
        resource: Plural, such as `pods`.
        name: Empty for the collection.
        namespace: Empty for a resource without namespaces, or for all of them.
        group: API group and version; empty for core/v1.
    """
    root = f"/apis/{group}" if group else "/api/v1"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    tail = f"/{quote(name, safe='')}" if name else ""
    return f"{root}{scope}/{resource}{tail}"


def resource_of(path: str) -> str:
    """Return the resource of a path, for a metric label without names of objects.

    Args:
        path: Such as `/api/v1/namespaces/a/pods/b/binding`, here `pods/binding`.
    """
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return "/".join(parts[0::2]) or "other"


def retry_after_s(header: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 without a usable one.

    The API server sends whole seconds. Proxies may send a date, which counts as none.
    """
    if header is None or not header.isascii() or not header.isdigit():
        return 0.0
    return float(header[:6])


async def _read_bounded(
    response: aiohttp.ClientResponse, limit_bytes: int, request_line: str
) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > limit_bytes:
            raise MalformedError(f"{request_line}: more than {limit_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def _translate_errors(request_line: str) -> Iterator[None]:
    """Raise exceptions of the network as KubeError."""
    try:
        yield
    except KubeError:
        raise
    except TimeoutError as error:
        raise UnreachableError(f"{request_line}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        text = f"{request_line}: {type(error).__name__}: {error}"
        raise UnreachableError(text) from error


def _tcp() -> aiohttp.BaseConnector:
    return aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60)
