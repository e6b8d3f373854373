"""HTTP on one side, the store and the watches on the other.

Between reading a request's body and writing its answer nothing awaits, so every
request sees and leaves a whole state.
"""

import asyncio
import collections
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Middleware

from sandbox.apiserver import discovery, lists, paths, requests, statuses
from sandbox.apiserver.requests import TRUE, Answer, Request
from sandbox.apiserver.store import Store
from sandbox.apiserver.watches import Hub, Watch
from service import clock

_JSON = "application/json"
_LARGEST_BODY_BYTES = 3 * 1024 * 1024
_WATCH_S = 3600
#: The real server sends a last bookmark this long before a watch times out.
_LAST_BOOKMARK_S = 2
#: Writes some lines of a watch on its stream.
Send = Callable[[web.StreamResponse, bytes], Awaitable[None]]
#: A middleware can set it for a request: how its watch's bytes go out. By default they
#: are written as they are. Not a key of the request: since 3.14 aiohttp warns of keys
#: that are text, once in a process, and where warnings are errors that request fails.
SEND: ContextVar[Send] = ContextVar("SEND", default=web.StreamResponse.write)

_ANONYMOUS = "system:anonymous"
_USER_PREFIX = "user:"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Who did what to which resource (`pods/binding` for a subresource), and where."""

    user: str
    verb: str
    resource: str
    #: "" for all namespaces, and for resources without them
    namespace: str


class Routes:
    """Answers the requests of one server."""

    def __init__(self, store: Store, hub: Hub, bookmark_period_s: float) -> None:
        """Serve `store`; `hub` hands its changes to the watches."""
        self._store = store
        self._hub = hub
        self._bookmark_period_s = bookmark_period_s
        #: How often each call was made, since the start.
        self.calls: collections.Counter[Call] = collections.Counter()

    def application(self, middlewares: Sequence[Middleware] = ()) -> web.Application:
        """Return the application that a runner serves.

        Args:
            middlewares: What stands between the clients and us.
        """
        app = web.Application(
            client_max_size=_LARGEST_BODY_BYTES, middlewares=middlewares
        )
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if http.method == "GET" and (found := discovery.answer(http.path)) is not None:
            if isinstance(found, str):
                return web.Response(text=found)
            return web.json_response(found)
        try:
            target = paths.parse(http.rel_url.raw_path)
        except statuses.StatusError as error:
            return _response(requests.failure(error))
        if target is None:
            return _response(requests.failure(statuses.page_not_found()))
        content_type = http.headers.get("Content-Type", "")
        request = Request(
            method=http.method,
            target=target,
            query=http.query,
            media_type=content_type.partition(";")[0].strip().lower(),
            accept=http.headers.get("Accept", ""),
            user_agent=http.headers.get("User-Agent", ""),
            body=await http.read(),
        )
        return await self._answer(http, request)

    async def _answer(self, http: web.Request, request: Request) -> web.StreamResponse:
        if request.verb:
            self.calls[call_of(http, request)] += 1
        if request.verb == "watch":
            return await self._watch(http, request)
        answer = requests.carry_out(self._store, request)
        self._hub.publish()
        return _response(answer)

    async def _watch(self, http: web.Request, request: Request) -> web.StreamResponse:
        try:
            watch = self._open(request)
            lasting_s = lists.number(request.query, "timeoutSeconds") or _WATCH_S
        except statuses.StatusError as error:
            return _response(requests.failure(error))
        stream = web.StreamResponse(headers={"Content-Type": _JSON})
        stream.enable_chunked_encoding()
        try:
            await stream.prepare(http)
            with_bookmarks = request.query.get("allowWatchBookmarks") in TRUE
            send = partial(SEND.get(), stream)
            await self._feed(send, watch, lasting_s, with_bookmarks=with_bookmarks)
            await stream.write_eof()
        except ConnectionError:
            pass  # the client has gone: there is nobody to tell
        finally:
            self._hub.close(watch)
        return stream

    def _open(self, request: Request) -> Watch:
        query, choice = request.query, request.choice
        version = lists.number(query, "resourceVersion")
        initial = query.get("sendInitialEvents") in TRUE
        drawing = requests.drawing_for_watch(self._store, request)
        draw = None if drawing is None else drawing.one
        if version and not initial:
            return self._hub.open(choice, after=version, draw=draw)
        # "Any version", or an explicit wish: what exists comes first.
        now = self._store.log.revision
        watch = self._hub.open(choice, after=now, draw=draw)
        if query.get("sendInitialEvents") not in _FALSE:
            for entry in lists.page(self._store, choice, {}).entries:
                watch.add(entry)
        if initial:
            watch.mark(now, initial_end=True)
        return watch

    async def _feed(
        self,
        send: Callable[[bytes], Awaitable[None]],
        watch: Watch,
        lasting_s: float,
        *,
        with_bookmarks: bool,
    ) -> None:
        """Send events as they come, and bookmarks, until the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + lasting_s
        last_bookmark = max(deadline - _LAST_BOOKMARK_S, loop.time() + 0.1)
        due = min(loop.time() + self._bookmark_period_s, last_bookmark)
        while True:
            if pending := watch.take():
                await send(pending)
                continue
            now = loop.time()
            if watch.ended or now >= deadline - clock.EARLY_S:
                return
            if with_bookmarks and now >= due - clock.EARLY_S:
                revision = self._hub.delivered
                # The real server sends none that says nothing new.
                if revision > watch.begun:
                    watch.mark(revision)
                    await send(watch.take())
                late = now >= last_bookmark - clock.EARLY_S
                due = now + self._bookmark_period_s
                due = deadline if late else min(due, last_bookmark)
                continue
            until = min(due, deadline) if with_bookmarks else deadline
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await watch.stirred.wait()


_FALSE = frozenset({"0", "false", "False"})


def _response(answer: Answer) -> web.Response:
    response = web.Response(status=answer.code, body=answer.raw, content_type=_JSON)
    for warning in answer.warnings:
        quoted = warning.replace("\\", r"\\").replace('"', r"\"")
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def call_of(http: web.Request, request: Request) -> Call:
    """Return the call that a request makes."""
    target = request.target
    return Call(_user(http), request.verb, target.qualified, target.namespace)


def _user(http: web.Request) -> str:
    """Return who asks: a token `user:NAME` is NAME; nobody is refused."""
    scheme, _, token = http.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        return _ANONYMOUS
    return token.removeprefix(_USER_PREFIX)
