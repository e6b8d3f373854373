"""What may be asked that decides nothing: explain, plan, snapshot, OpenAPI.

The cluster is copied between two decisions; all else happens in a thread, one question
after the other, so that no pod waits for a long answer.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.planning.topology import Networks
from extender.queries import explain, openapi, snapshot, what_if
from extender.queries.what_if import AskedWronglyError
from extender.scheduling.decisions import Notes
from scheduler_core.snapshot import document
from scheduler_core.snapshot.document import Snapshot

log = logging.getLogger(__name__)

#: Questions that may wait for their turn.
_WAITING_MOST = 8
_JSON = "application/json"
_NO, _YES = "false", "true"


class Reading:
    """The read endpoints over one cache."""

    def __init__(
        self,
        cache: Cache,
        networks: Networks,
        why_not_ready: Callable[[], str | None],
        *,
        notes: Notes,
        clock: Clock,
        waiting_most: int = _WAITING_MOST,
    ) -> None:
        """Answer nothing yet.

        Args:
            cache: what is known.
            networks: what is known of leaf switches and SuperPoDs, and the rules.
            why_not_ready: asked before each answer about the cluster.
            notes: what filter said last of each pod.
            clock: for how long pods have waited.
            waiting_most: questions that are taken at the same time.
        """
        self._waiting_most = waiting_most
        self._cache = cache
        self._networks = networks
        self._why_not_ready = why_not_ready
        self._notes = notes
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        return [
            web.post("/v1/plan", self._plan),
            web.get("/v1/snapshot", self._snapshot),
            web.get("/v1/openapi.json", self._openapi),
            web.get("/v1/explain/{namespace}/{name}", self._explain),
        ]

    async def _plan(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > what_if.LARGEST_BYTES:
            return _too_large()
        body = await request.content.read(what_if.LARGEST_BYTES + 1)
        while len(body) <= what_if.LARGEST_BYTES and not request.content.at_eof():
            body += await request.content.read(what_if.LARGEST_BYTES + 1 - len(body))
        if len(body) > what_if.LARGEST_BYTES:
            return _too_large()
        return await self._answer(lambda now: _planned(body, now))

    async def _snapshot(self, request: web.Request) -> web.Response:
        names = request.query.get("pod-names", _YES)
        if names not in {_NO, _YES}:
            return _error(
                HTTPStatus.BAD_REQUEST, f"pod-names: expected {_YES} or {_NO}"
            )
        return await self._answer(lambda now: _rendered(now, with_names=names == _YES))

    async def _explain(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        name = request.match_info["name"]
        pod = self._cache.pod(namespace, name)
        found = explain.explain(
            self._cache,
            self._notes,
            pod,
            name=f"{namespace}/{name}",
            now_s=self._clock.now_s(),
        )
        status = HTTPStatus.NOT_FOUND if pod is None else HTTPStatus.OK
        if "text/plain" in request.headers.get("Accept", ""):
            return web.Response(status=status, text=found.text)
        answer = found.json | {"text": found.text}
        return web.json_response(answer, status=status)

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.DOCUMENT)

    async def _answer(self, work: Callable[[Snapshot], bytes]) -> web.Response:
        """Copy the cluster and have the rest done in a thread, in turn."""
        waits = self._why_not_ready()
        if waits is not None:
            text = f"the extender is not ready: {waits}"
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, text)
        if self._waiting >= self._waiting_most:
            text = "too many questions at once: ask again in a moment"
            return _error(HTTPStatus.TOO_MANY_REQUESTS, text)
        self._waiting += 1
        try:
            async with self._turn:
                now = snapshot.of_now(self._cache, self._networks)
                said = await asyncio.to_thread(work, now)
        except AskedWronglyError as error:
            return _error(HTTPStatus.BAD_REQUEST, str(error))
        finally:
            self._waiting -= 1
        return web.Response(body=said, content_type=_JSON)


def _planned(body: bytes, now: Snapshot) -> bytes:
    answer = what_if.answer(what_if.parse(body), now)
    return json.dumps(answer, ensure_ascii=False).encode()


def _rendered(now: Snapshot, *, with_names: bool) -> bytes:
    shown = now if with_names else snapshot.without_names(now)
    return document.render(shown).encode()


def _too_large() -> web.Response:
    text = f"body: expected at most {what_if.LARGEST_BYTES} bytes"
    return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _error(status: HTTPStatus, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
