"""An extender whose answers the test sets, and which keeps what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from sandbox.apiclient import ApiClient
from tests.support.objects import PODS, binding
from tests.support.servers import listening

Body = dict[str, Any]


class StubExtender:
    """Leaves every node, gives no scores, and binds at once."""

    def __init__(self, api: ApiClient) -> None:
        self.asked: list[tuple[str, Body]] = []
        self.filter: Callable[[Body], Body] = lambda body: {
            "NodeNames": body["NodeNames"]
        }
        self.scores: dict[str, int] = {}
        self.bind: Callable[[Body], Awaitable[Body]] = self.bind_now
        #: cleared: bind does not answer
        self.open = asyncio.Event()
        self.open.set()
        self.url = ""
        self._api = api

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/{verb}", self._answer)
        async with listening(app, shutdown_s=0.1) as self.url:
            try:
                yield
            finally:
                self.open.set()

    def verbs(self, pod: str) -> list[str]:
        """What was asked about a pod, in order."""
        return [
            verb
            for verb, body in self.asked
            if pod == body.get("PodName") or pod == _name(body)
        ]

    async def bind_now(self, body: Body) -> Body:
        made = binding(body["PodName"], body["Node"], uid=body["PodUID"])
        await self._api.create(f"{PODS}/{body['PodName']}/binding", made)
        return {"Error": ""}

    async def _answer(self, request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.json()
        self.asked.append((verb, body))
        if verb == "filter":
            return web.json_response(self.filter(body))
        if verb == "prioritize":
            return web.json_response(
                [{"Host": host, "Score": score} for host, score in self.scores.items()]
            )
        await self.open.wait()
        return web.json_response(await self.bind(body))


def _name(body: Body) -> str:
    return str((body.get("Pod") or {}).get("metadata", {}).get("name", ""))
