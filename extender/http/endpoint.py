"""Each verb's way from a request to an answer: measured, and never a failure.

The schedulers drop the body of anything but 200, so a verb always answers 200 and
says in its own words what is wrong: a sentence, never a traceback.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from extender.http.body import BodyError
from extender.metrics import Metrics
from service.quote import shown

log = logging.getLogger(__name__)

#: Body in, body out.
Verb = Callable[[bytes, web.Request], Awaitable[bytes]]
#: The answer of a verb that cannot answer, from a sentence that says why.
OnError = Callable[[str], bytes]

INTERNAL = "internal error of the extender; its log says more"
_JSON = "application/json"


class Answering:
    """Wraps verbs. Protects: whatever fails, its caller gets an answer of its kind."""

    def __init__(
        self, metrics: Metrics, why_not_ready: Callable[[], str | None]
    ) -> None:
        """Count in `metrics`.

        Args:
            metrics: counts.
            why_not_ready: asked before each verb: on a cluster that is known in part,
                chips look free that are not.
        """
        self._metrics = metrics
        self._why_not_ready = why_not_ready

    def verb(
        self, name: str, answer: Verb, on_error: OnError
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Wrap a verb.

        Args:
            name: for metrics.
            answer: body in, body out.
            on_error: what to answer if that fails.
        """
        duration_s = self._metrics.request_s.labels(name)

        def refused(text: str) -> bytes:
            self._metrics.errors.labels(name).inc()
            return on_error(text)

        async def serve(request: web.Request) -> web.Response:
            start_s = time.perf_counter()
            try:
                body = await request.read()
                start_s = time.perf_counter()
                waits = self._why_not_ready()
                said = (
                    await answer(body, request)
                    if waits is None
                    else refused(f"the extender is not ready: {waits}")
                )
            except BodyError as error:
                said = refused(str(error))
            except web.RequestPayloadError:
                coding = shown(request.headers.get("Content-Encoding", ""))
                said = refused(f"body: expected {coding}, found other bytes")
            except web.HTTPRequestEntityTooLarge:
                said = refused("too many whole nodes: set nodeCacheCapable: true")
            except Exception:  # the scheduler must get an answer, whatever fails
                log.exception("request failed", extra={"verb": name})
                said = refused(INTERNAL)
            duration_s.observe(time.perf_counter() - start_s)
            return web.Response(body=said, content_type=_JSON)

        return serve
