"""A client that hides nothing: paths in, status codes and JSON out."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeAlias

import aiohttp

Object: TypeAlias = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_PATIENCE_S = 60


class Stream:
    """The events of one watch, one at a time."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Object:
        """Return the next event; end of stream is an error."""
        async with asyncio.timeout(_PATIENCE_S):
            line = await self.response.content.readline()
        assert line, "the watch has ended"
        event: Object = json.loads(line)
        return event

    async def change(self) -> tuple[str, str]:
        """Return type and object name of the next event."""
        event = await self.next()
        return event["type"], event["object"]["metadata"]["name"]

    async def rest(self) -> list[Object]:
        """Return all events until the server ends the stream."""
        async with asyncio.timeout(_PATIENCE_S):
            raw = await self.response.content.read()
        return [json.loads(line) for line in raw.splitlines()]


class Api:
    """Requests to one API server; `namespace` is this test's own."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str = "") -> None:
        self._session = session
        self.namespace = namespace
        #: of the last answer
        self.warnings: list[str] = []

    def path(self, *steps: str) -> str:
        """Return a path; one without `/` in front begins in the test's namespace."""
        path = "/".join(filter(None, steps))
        if path.startswith("/"):
            return path
        return f"/api/v1/namespaces/{self.namespace}/{path}"

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        media_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, Object]:
        """Send a request; return the status code and the decoded body.

        Bytes are sent as they are, all else as JSON.
        """
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        content = None if body is None else sent
        headers = {"Accept": accept}
        if content is not None:
            headers["Content-Type"] = media_type
        async with self._session.request(
            method, self.path(path), params=query, data=content, headers=headers
        ) as response:
            document: Object = await response.json(content_type=None)
            self.warnings = response.headers.getall("Warning", [])
            if document.get("status") == "Failure":
                assert document["code"] == response.status, document
            return response.status, document

    async def get(self, path: str, **query: str) -> tuple[int, Object]:
        return await self.call("GET", path, query=query)

    async def post(self, path: str, body: object) -> tuple[int, Object]:
        return await self.call("POST", path, body)

    async def put(self, path: str, body: object) -> tuple[int, Object]:
        return await self.call("PUT", path, body)

    async def patch(
        self, path: str, body: object, media_type: str = MERGE
    ) -> tuple[int, Object]:
        return await self.call("PATCH", path, body, media_type=media_type)

    async def delete(self, path: str, body: object = None) -> tuple[int, Object]:
        return await self.call("DELETE", path, body)

    async def create(self, plural: str, body: Object) -> Object:
        """Create an object in the test's namespace, for certain."""
        code, document = await self.post(plural, body)
        assert code == 201, document
        return document

    async def bound(self, node: str, name: str = "p", **more: Any) -> Object:
        """Create a pod and bind it, for certain; return it as it is then."""
        await self.create("pods", pod(name, **more))
        path = f"pods/{name}"
        code, status = await self.post(f"{path}/binding", binding(name, node))
        assert code == 201, status
        return (await self.get(path))[1]

    async def names(self, path: str, **query: str) -> list[str]:
        """Return the names that a list shows, in its order."""
        code, document = await self.get(path, **query)
        assert code == 200, document
        return [item["metadata"]["name"] for item in document["items"]]

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **query: str
    ) -> AsyncIterator[Stream]:
        """Open a watch."""
        params = {"watch": "1", **query}
        headers = {"Accept": accept}
        async with self._session.get(
            self.path(path), params=params, headers=headers
        ) as response:
            assert response.status == 200, await response.text()
            yield Stream(response)


def config(name: str, **rest: Any) -> Object:
    """Return a ConfigMap."""
    return {"metadata": {"name": name, **rest.pop("metadata", {})}, **rest}


def pod(name: str, **rest: Any) -> Object:
    """Return a pod with one container that asks for nothing."""
    spec = {"containers": [{"name": "main", "image": "example/image:1"}]}
    return {
        "metadata": {"name": name, **rest.pop("metadata", {})},
        "spec": {**spec, **rest.pop("spec", {})},
        **rest,
    }


def binding(name: str, node: str, **metadata: Any) -> Object:
    """Return a Binding of a pod to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def problem(status: Object) -> tuple[int, str, str]:
    """Return code, reason and message of a Status."""
    assert status["kind"] == "Status", status
    assert status["status"] == "Failure", status
    return status["code"], status.get("reason", ""), status["message"]
