"""What the shadow has found: counted, logged, and told over HTTP."""

import logging
from collections.abc import Callable, Sequence

from aiohttp import web

from extender.cache.cache import Cache
from extender.cache.events import Change, PodSeen
from extender.clocks import Clock
from extender.gang.gangs import Gang
from extender.metrics import Metrics
from extender.planning.plan import World
from extender.shadow.compare import Finding, Shadow

log = logging.getLogger(__name__)

#: What people and programs may read; schedulers' verbs are not among it.
_READ = "/v1/"


class Shadowing:
    """A shadow whose findings are counted, logged and served."""

    def __init__(
        self,
        cache: Cache,
        metrics: Metrics,
        *,
        wall: Clock,
        world: Callable[[Gang], World],
    ) -> None:
        """Have found nothing yet.

        Args:
            cache: What is known.
            metrics: Counts findings.
            wall: For when it was found.
            world: What is known of networks, asked for each job.
        """
        self._metrics = metrics
        self._shadow = Shadow(cache, wall_s=wall.wall_s, world=world, found=self._found)

    def before(self, change: Change) -> None:
        """Look at what the cache is about to learn."""
        if isinstance(change, PodSeen):
            self._shadow.before(change)

    def routes(self, routes: Sequence[web.RouteDef]) -> list[web.RouteDef]:
        """Of these the ones that only tell, and what has been found."""
        telling = [route for route in routes if route.path.startswith(_READ)]
        return [*telling, web.get("/v1/shadow", self._report)]

    async def _report(self, request: web.Request) -> web.Response:
        if "text/plain" in request.headers.get("Accept", ""):
            return web.Response(text=self._shadow.text())
        return web.json_response(self._shadow.report())

    def _found(self, finding: Finding) -> None:
        self._metrics.shadow.labels(finding.rule).inc()
        if finding.is_different:
            found = {"of": finding.of, "rule": finding.rule, "why": finding.text}
            log.info("would have decided otherwise", extra=found)
