"""How do kubelet and scheduling loop of the sandbox talk to an API server?

A few lines over aiohttp: JSON objects in, JSON objects out, and a list-watch
that starts over with a list whenever the watch ends. The real kubelet brings
its own client as well; ours must work against any API server, not only the
sandbox's.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp

#: A Kubernetes object as JSON.
Object = dict[str, Any]

_MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_RETRY_S = 0.2
_RETRY_MAX_S = 2.0


class ApiStatusError(Exception):
    """The API server answered, and the answer is an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


#: What a caller that tries again has to expect.
FAILURES = (ApiStatusError, aiohttp.ClientError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A complete list: whatever is not in it does not exist any more."""

    items: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One object was added or modified, or is gone."""

    item: Object
    gone: bool


Event = Listed | Changed


class ApiClient:
    """Requests and list-watches with one bearer token.

    Protects one connection pool; use it as an asynchronous context manager.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        authority: Path | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Remember where the API server is; nothing is opened yet.

        Args:
            url: Its base URL.
            token: Who speaks.
            authority: What its certificate is checked with; None: it is not.
            timeout_s: For one request.
        """
        self._url = url.rstrip("/")
        self._authority = authority
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        file = self._authority
        trusted = ssl.create_default_context(cafile=str(file)) if file else False
        self._session = aiohttp.ClientSession(
            headers=self._headers, connector=aiohttp.TCPConnector(ssl=trusted, limit=0)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the answer's object.

        Raises:
            ApiStatusError: the server answered with an error.
            aiohttp.ClientError, TimeoutError: there was no answer.
        """
        async with self._opened().request(
            method,
            self._url + path,
            params=params,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
            timeout=self._timeout,
        ) as response:
            return _decoded(response.status, await response.read())

    async def get(self, path: str) -> Object:
        """Return the object at `path`."""
        return await self.request("GET", path)

    async def items(self, path: str, **params: str) -> list[Object]:
        """Return the items of the list at `path`."""
        listed = await self.request("GET", path, params=params)
        return list(listed["items"])

    async def create(self, path: str, body: Object) -> Object:
        """Create `body` in the collection at `path`."""
        return await self.request("POST", path, body=body)

    async def patch(self, path: str, body: Object) -> Object:
        """Merge `body` into the object at `path`."""
        return await self.request("PATCH", path, body=body, content_type=_MERGE_PATCH)

    async def patch_status(self, path: str, body: Object) -> Object:
        """Merge `body` into the status of the object at `path`.

        Conditions and addresses merge by their type, so that several writers
        keep their own, as kubelet and scheduler do.
        """
        return await self.request(
            "PATCH", f"{path}/status", body=body, content_type=STRATEGIC_PATCH
        )

    async def delete(
        self,
        path: str,
        *,
        uid: str = "",
        grace_s: int | None = None,
        propagation: str = "",
    ) -> Object:
        """Delete the object at `path`, if it still has that uid."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if propagation:
            options["propagationPolicy"] = propagation
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        return await self.request("DELETE", path, body=options)

    async def follow(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[Event]:
        """List and watch a collection for ever; a broken watch starts with a list."""
        pause = _RETRY_S
        while True:
            try:
                listed = await self.request("GET", path, params=params)
                yield Listed(items=tuple(listed["items"]))
                pause = _RETRY_S
                version = listed["metadata"]["resourceVersion"]
                async for changed in self._watch(path, dict(params or {}), version):
                    yield changed
            except FAILURES:
                # The server is away or the watch is too old: the list that
                # follows brings everything that was missed.
                await asyncio.sleep(pause)
                pause = min(2 * pause, _RETRY_MAX_S)

    async def _watch(
        self, path: str, params: dict[str, str], version: str
    ) -> AsyncIterator[Changed]:
        params |= {"watch": "true", "resourceVersion": version}
        async with self._opened().get(
            self._url + path,
            params=params,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        ) as response:
            if response.status != HTTPStatus.OK:
                _decoded(response.status, await response.read())
            async for line in _lines(response.content):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    _raise_status(event["object"])
                if event["type"] != "BOOKMARK":
                    gone = event["type"] == "DELETED"
                    yield Changed(item=event["object"], gone=gone)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with` block")
        return self._session


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    # Not `readline`: an object may be longer than the stream's buffer.
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _decoded(status: int, body: bytes) -> Object:
    try:
        decoded = json.loads(body) if body else {}
    except ValueError:
        decoded = {"message": body.decode(errors="replace")}
    if not isinstance(decoded, dict):
        decoded = {"message": str(decoded)}
    if status >= HTTPStatus.BAD_REQUEST:
        _raise_status({"code": status, **decoded})
    return decoded


def _raise_status(status: Object) -> None:
    raise ApiStatusError(
        int(status.get("code") or HTTPStatus.INTERNAL_SERVER_ERROR),
        str(status.get("reason", "")),
        str(status.get("message", "")),
    )


async def is_settled(
    request: Awaitable[object], is_final: Callable[[int], bool]
) -> bool:
    """Wait for a request; say whether it has landed, or was refused for good.

    Args:
        request: Whose answer is not needed.
        is_final: Whether a refusal with this status will stay one.
    """
    try:
        await request
    except ApiStatusError as error:
        return is_final(error.status)
    except FAILURES:
        return False
    return True


def pod_path(pod: Object) -> str:
    """Return the path of a pod object."""
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
