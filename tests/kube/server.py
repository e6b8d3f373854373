"""A server on a real socket that answers as its script says, and takes notes."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from kube.client import Client
from kube.credentials import Credentials
from tests.support.servers import listening


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer."""

    status: int = 200
    body: Any = field(default_factory=dict)
    raw: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A stream: its chunks, then an end, a cut of the connection, or silence."""

    chunks: tuple[bytes, ...] = ()
    end: str = "close"  # close | cut | silence


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any = None


class Script:
    """What the server will answer, and what it was asked; and a client of it."""

    def __init__(self) -> None:
        self.url = ""
        self.client: Client
        self.answers: deque[Answer | Watch] = deque()
        self.requests: list[Request] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections: set[object] = set()
        #: set when a request has come
        self.asked = asyncio.Event()
        #: set when a stream has sent all its chunks and stays silent
        self.silent = asyncio.Event()

    def will(self, *answers: Answer | Watch) -> None:
        self.answers.extend(answers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        self.headers.append(request.headers)
        raw = await request.read()
        self.requests.append(
            Request(
                method=request.method,
                path=request.path,
                query=dict(request.query),
                body=json.loads(raw) if raw else None,
            )
        )
        self.asked.set()
        if not self.answers:
            return web.json_response(status=500, data={"message": "script is over"})
        answer = self.answers.popleft()
        if isinstance(answer, Watch):
            return await self._stream(request, answer)
        await asyncio.sleep(answer.after_s)
        raw = json.dumps(answer.body).encode() if answer.raw is None else answer.raw
        return web.Response(status=answer.status, body=raw, headers=answer.headers)

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in watch.chunks:
            await response.write(chunk)
        if watch.end == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif watch.end == "silence":
            self.silent.set()
            await asyncio.Event().wait()
        return response


@asynccontextmanager
async def scripted() -> AsyncIterator[Script]:
    script = Script()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", script.handle)
    async with (
        listening(app, shutdown_s=0.01) as script.url,
        client_of(script) as script.client,
    ):
        yield script


def client_of(script: Script) -> Client:
    return Client(Credentials(script.url))


def pod(name: str, version: int, **more: Any) -> dict[str, Any]:
    """Return a pod as the API server sends it; the UID defaults to `uid-<name>`."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": more.pop("uid", f"uid-{name}"),
        "resourceVersion": str(version),
        "managedFields": [{"manager": "nobody reads this"}],
    }
    return {"kind": "Pod", "metadata": metadata | more}


def page(version: int, *items: dict[str, Any], more: str = "") -> Answer:
    metadata = {"resourceVersion": str(version), "continue": more}
    return Answer(body={"kind": "PodList", "metadata": metadata, "items": [*items]})


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def status(code: int, reason: str, message: str = "") -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def refusal(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    return Answer(status=code, body=status(code, reason, message), headers=headers)
