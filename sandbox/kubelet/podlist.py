"""What does the kubelet answer at `/pods`?

The pods of its node as it knows them, to whoever shows a bearer token. The real
kubelet asks the API server whether the token may; here any token may.
"""

from aiohttp import web

from sandbox.kubelet.syncloop import SyncLoop
from sandbox.pods import HOST_IP


class PodListServer:
    """The kubelet's HTTP endpoint on a free port of 127.0.0.1."""

    def __init__(self, sync: SyncLoop, port: int = 0) -> None:
        """Serve from `start` on; port 0 is a free one."""
        self._sync = sync
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is served; 0 before `start`."""
        return self._port

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/pods/", self._pods)
        app.router.add_get("/healthz", _healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST_IP, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _pods(self, request: web.Request) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or not token.strip():
            return web.Response(status=401, text="Unauthorized")
        return web.json_response(
            {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": {},
                "items": [pod.source for pod in self._sync.pods()],
            }
        )


async def _healthz(request: web.Request) -> web.Response:
    del request
    return web.Response(text="ok")
