"""Routes of the read endpoints: explain, plan, snapshot, OpenAPI.

A pod that the cache does not have is read from the API server, to tell its mistake.

A request to the endpoint plan or snapshot may take long to answer. So the event loop
only copies the cluster, and a thread computes the answer from the copy. Meanwhile the
event loop serves the scheduler. Only one such answer is computed at a time.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from extender.queries import explain, openapi, snapshot, what_if
from extender.queries.job_state import Sources
from extender.queries.what_if import QuestionError
from kube import objects
from kube.errors import KubeError
from scheduler_core.snapshot import document
from scheduler_core.snapshot.values import Snapshot

log = logging.getLogger(__name__)

#: Most questions that may be open at the same time; others get status 429.
_WAITING_MOST = 8
_JSON = "application/json"
_NO, _YES = "false", "true"


class QueryRoutes:
    """HTTP handlers of the read endpoints: explain, plan, snapshot and OpenAPI."""

    def __init__(
        self,
        sources: Sources,
        why_not_ready: Callable[[], str | None],
        *,
        read_pod: Callable[[str, str], Awaitable[objects.Pod]],
        describe_move: Callable[[str], Mapping[str, Any]] = lambda _uid: {},
        waiting_most: int = _WAITING_MOST,
    ) -> None:
        """Create the handlers. They change nothing in the cluster or the cache.

        Args:
            read_pod: Returns the pod with a namespace and name from the API server.
            describe_move: Returns what would be done about faults for the job of the
                pod with a UID, as JSON; {} for nothing.
            why_not_ready: Returns None if the extender is ready, otherwise the reason.
                While it is not ready, the endpoints plan and snapshot answer with 503.
            waiting_most: Most requests to plan and snapshot, and about pods that are
                read, that may be open at the same time.
        """
        self._waiting_most = waiting_most
        self._sources = sources
        self._why_not_ready = why_not_ready
        self._read_pod = read_pod
        self._describe_move = describe_move
        self._worker_lock = asyncio.Lock()
        self._open_count = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the read endpoints, all under `/v1`."""
        return [
            web.post("/v1/plan", self._plan),
            web.get("/v1/snapshot", self._snapshot),
            web.get("/v1/openapi.json", self._openapi),
            web.get("/v1/explain/{namespace}/{name}", self._explain),
        ]

    async def _plan(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > what_if.LARGEST_BYTES:
            return _respond_too_large()
        body = await request.content.read(what_if.LARGEST_BYTES + 1)
        while len(body) <= what_if.LARGEST_BYTES and not request.content.at_eof():
            body += await request.content.read(what_if.LARGEST_BYTES + 1 - len(body))
        if len(body) > what_if.LARGEST_BYTES:
            return _respond_too_large()
        return await self._respond(lambda now: _render_plan(body, now))

    async def _snapshot(self, request: web.Request) -> web.Response:
        names = request.query.get("pod-names", _YES)
        if names not in {_NO, _YES}:
            return _respond_neither("pod-names")
        return await self._respond(
            lambda now: _render_snapshot(now, with_names=names == _YES)
        )

    async def _explain(self, request: web.Request) -> web.Response:
        namespace = request.match_info["namespace"]
        name = request.match_info["name"]
        by_node = request.query.get("nodes", _NO)
        if by_node not in {_NO, _YES}:
            return _respond_neither("nodes")
        sources, status = self._sources, HTTPStatus.OK
        if pod := sources.cache.pod_named(namespace, name):
            move = self._describe_move(pod.uid)
            answer = explain.explain(sources, pod, move=move, by_node=by_node == _YES)
        elif self._open_count >= self._waiting_most:
            return _respond_busy()
        else:
            found = await self._find_pod(namespace, name)
            answer = explain.explain_unknown(f"{namespace}/{name}", found)
            status = status if "problem" in answer else HTTPStatus.NOT_FOUND
        text = explain.render_text(answer)
        if "text/plain" in request.headers.get("Accept", ""):
            return web.Response(status=status, text=text)
        return web.json_response(answer | {"text": text}, status=status)

    async def _find_pod(self, namespace: str, name: str) -> objects.Pod | None:
        """Return a pod from the API server; None if it has none, or does not say."""
        self._open_count += 1
        try:
            return await self._read_pod(namespace, name)
        except KubeError:
            return None
        finally:
            self._open_count -= 1

    async def _openapi(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.DOCUMENT)

    async def _respond(self, work: Callable[[Snapshot], bytes]) -> web.Response:
        """Copy the cluster, run `work` on the copy in a thread, return the response.

        One response is computed at a time. The response has status 503 if the extender
        is not ready; otherwise 429 if `waiting_most` requests are open already.
        """
        reason = self._why_not_ready()
        if reason is not None:
            text = f"the extender is not ready: {reason}"
            return _respond_error(HTTPStatus.SERVICE_UNAVAILABLE, text)
        if self._open_count >= self._waiting_most:
            return _respond_busy()
        self._open_count += 1
        try:
            async with self._worker_lock:
                now = snapshot.take(self._sources.cache, self._sources.networks)
                body = await asyncio.to_thread(work, now)
        except QuestionError as error:
            return _respond_error(HTTPStatus.BAD_REQUEST, str(error))
        finally:
            self._open_count -= 1
        return web.Response(body=body, content_type=_JSON)


def _render_plan(body: bytes, now: Snapshot) -> bytes:
    answer = what_if.answer(what_if.parse(body), now)
    return json.dumps(answer, ensure_ascii=False).encode()


def _render_snapshot(now: Snapshot, *, with_names: bool) -> bytes:
    shown = now if with_names else snapshot.without_names(now)
    return document.render(shown).encode()


def _respond_too_large() -> web.Response:
    text = f"body: expected at most {what_if.LARGEST_BYTES} bytes"
    return _respond_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _respond_busy() -> web.Response:
    text = "too many questions at once: ask again in a moment"
    return _respond_error(HTTPStatus.TOO_MANY_REQUESTS, text)


def _respond_neither(parameter: str) -> web.Response:
    text = f"{parameter}: expected {_YES} or {_NO}"
    return _respond_error(HTTPStatus.BAD_REQUEST, text)


def _respond_error(status: HTTPStatus, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
