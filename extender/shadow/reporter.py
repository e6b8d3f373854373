"""Metrics, log and HTTP endpoint `/v1/shadow` for the comparisons of shadow mode."""

import logging
from collections.abc import Callable, Sequence

from aiohttp import web

from extender.cache.cache import Cache
from extender.cache.events import Change, PodUpdated
from extender.clocks import Clock
from extender.gang.gangs import Gang
from extender.metrics import Metrics
from extender.planning.plan import TopologySnapshot
from extender.shadow.compare import Finding, Shadow

log = logging.getLogger(__name__)

#: Path prefix of endpoints that only read; verbs of schedulers are elsewhere.
_READ_PREFIX = "/v1/"


class ShadowReporter:
    """Reporter of shadow mode's comparisons: metrics, log and HTTP endpoint."""

    def __init__(
        self,
        cache: Cache,
        metrics: Metrics,
        *,
        wall: Clock,
        topology: Callable[[Gang], TopologySnapshot],
    ) -> None:
        """Start without comparisons.

        Args:
            cache: The current cluster. Read only.
            metrics: Counts comparisons by outcome.
            wall: Gives the time of a comparison.
            topology: Returns the leaf switches, SuperPoDs and operator's settings with
                which a job is planned.
        """
        self._metrics = metrics
        self._shadow = Shadow(
            cache, wall_s=wall.wall_s, topology=topology, on_finding=self._on_finding
        )

    def compare_bound(self, change: Change) -> None:
        """Compare a newly bound pod's node and chips with the extender's choice.

        Call this before the cache applies `change`. If `change` does not bind a pod,
        nothing is compared.
        """
        if isinstance(change, PodUpdated):
            self._shadow.compare_bound(change)

    def routes(self, routes: Sequence[web.RouteDef]) -> list[web.RouteDef]:
        """Return `/v1/shadow` and those of `routes` that are under `/v1/`.

        The other routes in `routes`, such as filter and bind, are dropped.
        """
        read_routes = [route for route in routes if route.path.startswith(_READ_PREFIX)]
        return [*read_routes, web.get("/v1/shadow", self._report)]

    async def _report(self, request: web.Request) -> web.Response:
        if "text/plain" in request.headers.get("Accept", ""):
            return web.Response(text=self._shadow.text())
        return web.json_response(self._shadow.report())

    def _on_finding(self, finding: Finding) -> None:
        self._metrics.shadow.labels(finding.rule).inc()
        if finding.is_different:
            extra = {"of": finding.of, "rule": finding.rule, "why": finding.text}
            log.info("would have decided otherwise", extra=extra)
