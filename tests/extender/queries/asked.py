"""A world beside which its endpoints are asked, as people and the scheduler do."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from extender.cache import events
from extender.queries.routes import QueryRoutes
from tests.extender.queries.test_routes import is_as_described
from tests.support import objects
from tests.support.caches import cluster
from tests.support.extender import ServedWorld, world
from tests.support.servers import asking
from tests.support.watched import member

PATH = "/v1/explain/{namespace}/{name}"
NAMES = ("n1", "n2", "n3")
SINCE = "2027-01-15T08:00:00Z"


def made(name: str, minute: int = 50, **parts: Any) -> events.PodUpdated:
    """A pod of a job that says its size, made at this minute after seven."""
    found = member(name, **parts)
    created = f"2027-01-15T07:{minute}:00Z"
    return replace(found, pod=replace(found.pod, created=created))


@dataclass(frozen=True, slots=True)
class Asked:
    """The endpoints beside a world."""

    world: ServedWorld
    session: aiohttp.ClientSession
    #: binds that have no answer yet
    calls: list[asyncio.Task[str]] = field(default_factory=list)

    async def filter(self, *names: str, nodes: Sequence[str] = ()) -> None:
        """Have the scheduler ask about pods, and learn what their events say."""
        offered = list(nodes or self.world.cache.index.names)
        for name in names:
            sent = objects.pod(name, 1, meta={"uid": f"uid-{name}"})
            body = json.dumps({"Pod": sent, "NodeNames": offered})
            async with self.session.post("/filter", data=body) as answer:
                assert answer.status == 200

    async def explain(self, name: str, query: str = "") -> dict[str, Any]:
        path = f"/v1/explain/default/{name}{query}"
        async with self.session.get(path) as answer:
            found: dict[str, Any] = await answer.json()
            assert is_as_described(PATH, "get", answer.status, found)
        async with self.session.get(path, headers={"Accept": "text/plain"}) as answer:
            assert await answer.text() == found.get("text", "")
        return found


@asynccontextmanager
async def asked(
    *seen: events.Change, nodes: Sequence[str] = NAMES, **more: Any
) -> AsyncIterator[Asked]:
    """A world in which this is seen, and its endpoints."""
    async with world(cluster(*seen, nodes=nodes)) as w:
        sources = replace(w.sources, **more)
        queries = QueryRoutes(sources, lambda: None, read_pod=w.pod_api.get)
        routes = [*w.verbs.routes(), *queries.routes()]
        async with asking(routes) as session:
            it = Asked(w, session)
            yield it
            w.api.go_on.set()
            if w.calls.until is not None:
                w.calls.until.set()
            await asyncio.gather(*it.calls)
            await w.settled()


def text_of(lines: Sequence[str]) -> str:
    """An explanation of these lines, as people get it."""
    first, *others = lines
    return "".join([f"{first}\n", *(f"  {line}\n" for line in others)])
