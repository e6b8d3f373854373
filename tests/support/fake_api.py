"""An API server that can bind pods, and can fail to say so."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from aiohttp import web

from extender.apiserver.writers import KubePods
from kube import credentials
from kube.client import Client
from tests.support import objects
from tests.support.servers import listening


class Fate(Enum):
    """What becomes of a bind call."""

    DONE = auto()
    #: executed, and the connection cut before the answer
    DONE_AND_CUT = auto()
    CUT = auto()
    #: executed, but only when the test says so
    WAIT = auto()
    FORBIDDEN = auto()
    BROKEN = auto()


@dataclass(slots=True)
class Api:
    """Its pods, and what was asked of it."""

    url: str = ""
    #: {(namespace, name): pod}
    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    fates: deque[Fate] = field(default_factory=deque)
    #: bodies of the bind calls
    bindings: list[dict[str, Any]] = field(default_factory=list)
    #: bind calls without an answer: now, and the most that there were
    unanswered: int = 0
    unanswered_most: int = 0
    reads: int = 0
    is_readable: bool = True
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, name: str, uid: str, count: int = 1) -> None:
        made = objects.pod(name, count, meta={"uid": uid})
        self.pods["default", name] = {**made, "status": {"phase": "Pending"}}

    def node_of(self, name: str) -> str:
        found: str = self.pods["default", name]["spec"].get("nodeName", "")
        return found

    async def read(self, request: web.Request) -> web.Response:
        self.reads += 1
        pod = self.pods.get((request.match_info["ns"], request.match_info["name"]))
        if not self.is_readable:
            return status(500, "InternalError")
        return web.json_response(pod) if pod else status(404, "NotFound")

    async def bind(self, request: web.Request) -> web.StreamResponse:
        binding = await request.json()
        self.bindings.append(binding)
        fate = self.fates.popleft() if self.fates else Fate.DONE
        if fate is Fate.FORBIDDEN:
            return status(403, "Forbidden")
        if fate is Fate.BROKEN:
            return status(500, "InternalError")
        if fate is Fate.WAIT:
            self.unanswered += 1
            self.unanswered_most = max(self.unanswered, self.unanswered_most)
            await self.go_on.wait()
            self.unanswered -= 1
        done = status(0, "") if fate is Fate.CUT else self.execute(binding)
        if fate in (Fate.CUT, Fate.DONE_AND_CUT):
            assert request.transport is not None
            request.transport.close()
        return done

    def execute(self, binding: dict[str, Any]) -> web.Response:
        """Bind as kube-apiserver does: UID as a precondition, annotations merged."""
        meta = binding["metadata"]
        pod = self.pods.get((meta["namespace"], meta["name"]))
        if pod is None:
            return status(404, "NotFound")
        if pod["metadata"]["uid"] != meta["uid"] or pod["spec"].get("nodeName"):
            return status(409, "Conflict")
        pod["spec"]["nodeName"] = binding["target"]["name"]
        pod["metadata"].setdefault("annotations", {}).update(meta["annotations"])
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)


def status(code: int, reason: str) -> web.Response:
    body = json.dumps({"kind": "Status", "code": code, "reason": reason})
    return web.Response(status=code or 200, text=body, content_type="application/json")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Api, KubePods]]:
    api = Api()
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{ns}/pods/{name}", api.read)
    app.router.add_post("/api/v1/namespaces/{ns}/pods/{name}/binding", api.bind)
    async with (
        listening(app) as api.url,
        Client(credentials.from_url(api.url)) as client,
    ):
        yield api, KubePods(client)
