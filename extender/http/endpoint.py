"""HTTP handlers for schedulers' verbs (filter, bind); they answer with status 200.

Schedulers drop the body of any other status. So a verb answers 200 also after an error,
in the protocol's message format. An error text is a sentence, never a traceback.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from extender.http.body import BodyError
from extender.metrics import Metrics
from service.quote import quote_value

log = logging.getLogger(__name__)

#: Returns the response body for a request body.
Verb = Callable[[bytes, web.Request], Awaitable[bytes]]
#: Returns a verb's response body for an error, which is a sentence.
OnError = Callable[[str], bytes]

INTERNAL = "internal error of the extender; its log says more"
_JSON = "application/json"


class VerbHandlers:
    """Maker of aiohttp handlers for scheduler verbs, such as filter.

    The handlers measure the time from the body of each request to its answer.
    """

    def __init__(
        self, metrics: Metrics, why_not_ready: Callable[[], str | None]
    ) -> None:
        """Store what the handlers of all verbs share.

        Args:
            metrics: Records durations of requests and counts errors, by verb.
            why_not_ready: Returns why no verb may be answered now; None if verbs may.
                Called at each request. If it returns a reason, the request gets an
                error answer.
        """
        self._metrics = metrics
        self._why_not_ready = why_not_ready

    def wrap(
        self, name: str, answer: Verb, on_error: OnError
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return the aiohttp handler of a verb.

        Args:
            name: Name of the verb, the label in metrics.
            answer: Returns the response body for a request body.
            on_error: Returns the response body for an error sentence. It is called if
                the verb fails or the extender is not ready.
        """
        duration_s = self._metrics.request_s.labels(name)
        errors = self._metrics.errors.labels(name)

        def render_error(text: str) -> bytes:
            errors.inc()
            return on_error(text)

        async def serve(request: web.Request) -> web.Response:
            start_s = time.perf_counter()
            try:
                body = await request.read()
                start_s = time.perf_counter()
                not_ready = self._why_not_ready()
                answer_body = (
                    await answer(body, request)
                    if not_ready is None
                    else render_error(f"the extender is not ready: {not_ready}")
                )
            except BodyError as error:
                answer_body = render_error(str(error))
            except web.RequestPayloadError:
                coding = quote_value(request.headers.get("Content-Encoding", ""))
                answer_body = render_error(
                    f"body: expected {coding}, found other bytes"
                )
            except web.HTTPRequestEntityTooLarge:
                answer_body = render_error(
                    "too many whole nodes: set nodeCacheCapable: true"
                )
            except Exception:  # the scheduler must get a response, whatever fails
                log.exception("request failed", extra={"verb": name})
                answer_body = render_error(INTERNAL)
            duration_s.observe(time.perf_counter() - start_s)
            return web.Response(body=answer_body, content_type=_JSON)

        return serve
