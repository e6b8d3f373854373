"""An extender whose answers the test sets, and which keeps what it was asked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sandbox.apiclient import ApiClient

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
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/filter", self._filter)
        app.router.add_post("/prioritize", self._prioritize)
        app.router.add_post("/bind", self._bind)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.open.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def verbs(self, pod: str) -> list[str]:
        """What was asked about a pod, in order."""
        return [
            verb
            for verb, body in self.asked
            if pod == body.get("PodName") or pod == _name(body)
        ]

    async def bind_now(self, body: Body) -> Body:
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}"
        binding: Body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        await self._api.create(f"{path}/binding", binding)
        return {"Error": ""}

    async def _filter(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("filter", body))
        return web.json_response(self.filter(body))

    async def _prioritize(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("prioritize", body))
        scores = [{"Host": host, "Score": score} for host, score in self.scores.items()]
        return web.json_response(scores)

    async def _bind(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append(("bind", body))
        await self.open.wait()
        return web.json_response(await self.bind(body))


def _name(body: Body) -> str:
    return str((body.get("Pod") or {}).get("metadata", {}).get("name", ""))
