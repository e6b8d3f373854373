"""What can befall requests to the API server, and whom?

A `Trouble` is a value that says what and to whose requests; `Troubles` stands between
the clients and the server as a middleware and does it, as long as it has been told.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from sandbox.apiserver import paths, statuses, watches
from sandbox.apiserver.requests import Request
from sandbox.apiserver.routes import SEND, Call, call_of

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
READS = frozenset({"get", "list", "watch"})


class What(Enum):
    """What happens to a request."""

    #: it waits for `delay_s`, and so does each line of a watch
    SLOW = auto()
    #: it is refused with `status`, and has no effect
    REFUSED = auto()
    #: it has its effect, and is answered with a 500 all the same
    DONE_AND_BROKEN = auto()
    #: it has its effect, and the connection breaks before its answer, or in the
    #: middle of a watch's line
    CUT = auto()
    #: a list shows what was when the trouble began
    STALE = auto()
    #: nothing more comes on a watch while it lasts, bookmarks included
    SILENT = auto()
    #: a watch ends with an ERROR event of `status` in place of its next lines
    ERROR_EVENT = auto()
    #: each line of a watch comes twice
    DOUBLED = auto()
    #: a watch brings no bookmarks
    NO_BOOKMARKS = auto()
    #: a watch brings nothing but bookmarks: what happened meanwhile never comes
    LOST = auto()
    #: it has its effect; then `then` is called, and the connection breaks
    CRASH = auto()


_ON_WATCHES = frozenset(
    {
        What.SLOW,
        What.CUT,
        What.SILENT,
        What.ERROR_EVENT,
        What.DOUBLED,
        What.NO_BOOKMARKS,
        What.LOST,
    }
)
#: {status: message}; as the API server has it where clients tell refusals apart
_MESSAGES = {
    403: 'forbidden: User "{user}" cannot {verb} resource "{resource}" in API group ""',
    409: "Operation cannot be fulfilled: the object has been modified; apply your "
    "changes to the latest version and try again",
    410: "too old resource version: it is no longer in the history",
    429: "too many requests, please try again later",
    500: "Internal error occurred: this trouble was asked for",
    503: "the server is currently unable to handle the request",
}
#: {status: reason}, where it is not the name of the status
_REASONS = {410: "Expired", 500: "InternalError"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that happens to some requests."""

    what: What
    verbs: frozenset[str] = WRITES | READS
    #: patterns, as a shell has them
    user: str = "*"
    resource: str = "*"
    #: requests, or writes on a watch, that it happens to; 0: while it lasts
    count: int = 0
    #: how many of them are let through first
    spared: int = 0
    status: int = 500
    #: of the Retry-After header; 0: without it
    retry_after_s: int = 0
    delay_s: float = 0.0
    #: of a CRASH: called when the request has had its effect
    then: Callable[[], None] | None = None


class _Active:
    """A trouble that lasts: how often it is still to happen."""

    def __init__(self, trouble: Trouble, revision: int) -> None:
        self.trouble = trouble
        self.revision = revision
        self.over = asyncio.Event()
        self._spared = trouble.spared
        self._left = trouble.count

    def finds(self, asked: Call) -> bool:
        """Say whether it happens to this request, and count it."""
        trouble = self.trouble
        if (
            self.over.is_set()
            or asked.verb not in trouble.verbs
            or not fnmatchcase(asked.user, trouble.user)
            or not fnmatchcase(asked.resource, trouble.resource)
        ):
            return False
        if self._spared:
            self._spared -= 1
            return False
        if trouble.count:
            self._left -= 1
            if not self._left:
                self.over.set()
        return True


class Troubles:
    """The troubles of one API server. Protects which of them still last."""

    def __init__(self, revision: Callable[[], int] = lambda: 0) -> None:
        """Begin without any.

        Args:
            revision: Of the server's store, now.
        """
        self._revision = revision
        self._active: list[_Active] = []

    def follow(self, revision: Callable[[], int]) -> None:
        """Say whose revisions count, for a server that is made after its middleware."""
        self._revision = revision

    def begin(self, trouble: Trouble) -> Callable[[], None]:
        """Let a trouble begin; return what ends it, if it has not ended by itself."""
        active = _Active(trouble, self._revision())
        self._active.append(active)

        def end() -> None:
            active.over.set()
            with suppress(ValueError):
                self._active.remove(active)

        return end

    def middleware(self) -> Middleware:
        """Return what stands between the clients and the server."""

        @web.middleware
        async def troubled(
            request: web.Request, handler: Handler
        ) -> web.StreamResponse:
            asked = _asked(request)
            if asked is None:
                return await handler(request)
            token = SEND.set(partial(self._send, request, asked))
            try:
                return await self._answer(request, asked, handler)
            finally:
                # The next request of this connection runs in the same task.
                SEND.reset(token)

        return troubled

    def _of(self, asked: Call, *, on_watch: bool) -> Iterator[_Active]:
        for active in tuple(self._active):
            suits = active.trouble.what in _ON_WATCHES
            if asked.verb == "watch" and suits != on_watch:
                continue
            if active.finds(asked):
                yield active
            if active.over.is_set() and active in self._active:
                self._active.remove(active)

    async def _answer(
        self, http: web.Request, asked: Call, handler: Handler
    ) -> web.StreamResponse:
        ends: list[Callable[[web.StreamResponse], web.StreamResponse]] = []
        for active in self._of(asked, on_watch=False):
            trouble = active.trouble
            match trouble.what:
                case What.SLOW:
                    await asyncio.sleep(trouble.delay_s)
                case What.REFUSED:
                    return _refusal(trouble, asked)
                case What.STALE if asked.verb == "list":
                    http = _at(http, active.revision)
                case What.DONE_AND_BROKEN:
                    ends.append(lambda _: _refusal(Trouble(what=What.REFUSED), asked))
                case What.CUT | What.CRASH:
                    ends.append(partial(_cut, http, trouble))
                case _:
                    pass
        response = await handler(http)
        for end in ends:
            response = end(response)
        return response

    async def _send(
        self, http: web.Request, asked: Call, stream: web.StreamResponse, lines: bytes
    ) -> None:
        for active in self._of(asked, on_watch=True):
            trouble = active.trouble
            match trouble.what:
                case What.SLOW:
                    await asyncio.sleep(trouble.delay_s)
                case What.SILENT:
                    await active.over.wait()
                case What.DOUBLED:
                    each = lines.splitlines(keepends=True)
                    lines = b"".join(2 * line for line in each)
                case What.NO_BOOKMARKS | What.LOST:
                    lines = _bookmarks(lines, wanted=trouble.what is What.LOST)
                case What.ERROR_EVENT:
                    error = _error(trouble.status, asked).document
                    await stream.write(watches.frame_of("ERROR", error))
                    await stream.write_eof()
                    raise ConnectionResetError
                case _:
                    await stream.write(lines[: len(lines) // 2])
                    _hang_up(http)
                    raise ConnectionResetError
        if lines:
            await stream.write(lines)


def _asked(http: web.Request) -> Call | None:
    """Return whose request for what it is; None where no object is asked for."""
    try:
        target = paths.parse(http.rel_url.raw_path)
    except statuses.StatusError:
        return None
    if target is None:
        return None
    request = Request(method=http.method, target=target, query=http.query)
    return call_of(http, request)


def _refusal(trouble: Trouble, asked: Call) -> web.Response:
    error = _error(trouble.status, asked)
    wait_s = trouble.retry_after_s
    headers = {"Retry-After": str(wait_s)} if wait_s else {}
    return web.json_response(error.document, status=error.code, headers=headers)


def _error(status: int, asked: Call) -> statuses.StatusError:
    text = _MESSAGES[status].format(
        user=asked.user, verb=asked.verb, resource=asked.resource
    )
    return statuses.StatusError(status, text, reason=_REASONS.get(status))


def _bookmarks(lines: bytes, *, wanted: bool) -> bytes:
    """Return only the bookmarks of a watch's lines, or all others."""
    each = lines.splitlines(keepends=True)
    begin = b'{"type":"BOOKMARK"'
    return b"".join(line for line in each if line.startswith(begin) is wanted)


def _at(http: web.Request, revision: int) -> web.Request:
    """Return the same list, of an earlier moment."""
    if "continue" in http.query:
        return http
    asked = {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
    return http.clone(rel_url=http.rel_url.update_query(asked))


def _cut(
    http: web.Request, trouble: Trouble, response: web.StreamResponse
) -> web.StreamResponse:
    """Let a request that has had its effect go without its answer."""
    if trouble.then is not None:
        trouble.then()
    _hang_up(http)
    return response


def _hang_up(http: web.Request) -> None:
    if http.transport is not None:
        http.transport.abort()
