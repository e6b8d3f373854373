"""An extender that decides nothing: what the calls alone cost.

It makes the same calls as ours with the same libraries: filter passes all names,
bind posts a Binding. What ours costs more is what ours does.

    python -m benchmarks.do_nothing API_SERVER SERVICE_ACCOUNT_DIR ADDRESS_FILE
"""

import asyncio
import json
import ssl
import sys
from pathlib import Path

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry

from service import process
from service.endpoints import Endpoints


class DoNothing:
    """Answers filter and bind. Owner of one session with the API server."""

    def __init__(self, session: aiohttp.ClientSession, api_server: str) -> None:
        """Bind through an open session."""
        self._session = session
        self._api_server = api_server

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        return [
            web.post("/filter", self._filter),
            web.post("/prioritize", self._prioritize),
            web.post("/bind", self._bind),
        ]

    async def _filter(self, request: web.Request) -> web.Response:
        names = json.loads(await request.read())["NodeNames"]
        return web.json_response({"NodeNames": names, "FailedNodes": {}, "Error": ""})

    async def _prioritize(self, request: web.Request) -> web.Response:
        names = json.loads(await request.read())["NodeNames"]
        return web.json_response([{"Host": name, "Score": 0} for name in names])

    async def _bind(self, request: web.Request) -> web.Response:
        args = json.loads(await request.read())
        name, namespace = args["PodName"], args["PodNamespace"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": args["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args["Node"]},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        async with self._session.post(self._api_server + path, json=binding) as answer:
            said = await answer.read()
        refused = "" if answer.ok else said.decode()
        return web.json_response({"Error": refused})


async def _serve(api_server: str, account: Path, address_file: Path) -> None:
    token = (account / "token").read_text(encoding="ascii")
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {token}"},
        connector=aiohttp.TCPConnector(limit=32, ssl=trusted),
    ) as session:
        routes = DoNothing(session, api_server).routes()
        endpoints = Endpoints(CollectorRegistry(), lambda: None, routes=routes)
        async with endpoints.serving("127.0.0.1:0", address_file):
            await asyncio.Event().wait()


if __name__ == "__main__":
    _, server, folder, file = sys.argv
    sys.exit(process.run(lambda: _serve(server, Path(folder), Path(file))))
