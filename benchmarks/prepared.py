"""An API server without a store: it lists a made-up cluster, and says yes to a bind.

It checks nothing, keeps nothing but where the pods of one job have gone, and shows
that in its watches; so hardly any of what is measured beside it is its own time. A
process of its own:

    python -m benchmarks.prepared POPULATION

POPULATION is that of `benchmarks.population` as JSON; the address is printed. Besides
what Kubernetes serves, `/benchmark/...` makes things happen.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from benchmarks.population import Population, member_name
from service import process

#: Of every list: no object is newer.
LIST_VERSION = 1 << 40
_JSON = "application/json"


@dataclass(slots=True, eq=False)
class _Watch:
    """One open watch: what it has still to be sent."""

    kind: str
    pending: list[bytes] = field(default_factory=list)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)


class Binding(msgspec.Struct):
    """What is read of a Binding."""

    class Meta(msgspec.Struct):
        """Its metadata."""

        annotations: msgspec.Raw = msgspec.Raw(b"{}")

    class Target(msgspec.Struct):
        """Where to."""

        name: str

    metadata: Meta
    target: Target


_BINDING = msgspec.json.Decoder(Binding)


class Prepared:
    """Answers for one population. Owner of where its job's pods have gone."""

    def __init__(self, population: Population) -> None:
        """Nothing is bound."""
        self._all = population
        self._members = {member_name(n): n for n in range(population.gang)}
        self._version = LIST_VERSION
        self._watches: set[_Watch] = set()
        #: (version, kind, line of a watch) of all that has happened
        self._log: list[tuple[int, str, bytes]] = []
        #: {pod of the job: it, as bound}
        self._bound: dict[str, bytes] = {}

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        core = "/api/v1"
        return [
            web.get(core + "/{kind:nodes|pods}", self._collection),
            web.get(core + "/namespaces/{of}/{kind:configmaps}", self._collection),
            web.get(core + "/namespaces/{of}/pods/{name}", self._pod),
            web.post(core + "/namespaces/{of}/pods/{name}/binding", self._bind),
            web.post(core + "/namespaces/{of}/events", self._accept),
            web.patch(core + "/{kind}/{name}", self._accept),
            web.post("/benchmark/report/{node}/{is_broken}", self._say_report),
        ]

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        kind, query = request.match_info["kind"], request.query
        is_empty = "fieldSelector" in query  # one by its name: there is none such
        if "watch" in query:
            return await self._watch(request, "" if is_empty else kind)
        first, most = int(query.get("continue", "0")), int(query["limit"])
        items = [] if is_empty else [*self._all.page(kind, first, most)]
        meta = {"resourceVersion": str(LIST_VERSION)}
        if items and first + most < self._all.count(kind):
            meta["continue"] = str(first + most)
        head = json.dumps(meta).encode()
        body = b'{"metadata":%b,"items":[%b]}' % (head, b",".join(items))
        return web.Response(body=body, content_type=_JSON)

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": _JSON})
        stream.enable_chunked_encoding()
        await stream.prepare(request)
        after = int(request.query["resourceVersion"])
        watch = _Watch(
            kind, [line for at, of, line in self._log if at > after and of == kind]
        )
        self._watches.add(watch)
        try:
            while True:
                lines, watch.pending = watch.pending, []
                watch.stirred.clear()
                if lines:
                    await stream.write(b"".join(lines))
                else:
                    await watch.stirred.wait()
        except ConnectionError:
            return stream
        finally:
            self._watches.discard(watch)

    def _show(self, kind: str, obj: bytes) -> None:
        line = b'{"type":"MODIFIED","object":%b}\n' % obj
        self._log.append((self._version, kind, line))
        for watch in self._watches:
            if watch.kind == kind:
                watch.pending.append(line)
                watch.stirred.set()

    async def _pod(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = self._bound.get(name) or self._all.waiting(self._members[name])
        return web.Response(body=found, content_type=_JSON)

    async def _bind(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        binding = _BINDING.decode(await request.read())
        self._version += 1
        self._bound[name] = self._all.waiting(
            self._members[name],
            version=self._version,
            node=binding.target.name,
            added=bytes(binding.metadata.annotations),
        )
        self._show("pods", self._bound[name])
        return web.Response(status=201, body=b"{}", content_type=_JSON)

    async def _accept(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"{}", content_type=_JSON)

    async def _say_report(self, request: web.Request) -> web.Response:
        asked = request.match_info
        self._version += 1
        report = self._all.report(
            int(asked["node"]),
            broken=asked["is_broken"] == "broken",
            version=self._version,
        )
        self._show("configmaps", report)
        return web.Response(body=b"{}", content_type=_JSON)


@asynccontextmanager
async def serving(population: Population) -> AsyncIterator[str]:
    """Serve on any port of this machine; yields the URL."""
    app = web.Application()
    app.add_routes(Prepared(population).routes())
    # A client that goes away ends its watch at once, not at the next event.
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _serve(population: Population) -> None:
    async with serving(population) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asked = Population(**json.loads(sys.argv[1]))
    sys.exit(process.run(lambda: _serve(asked)))
