"""Metrics, log and HTTP endpoint `/v1/shadow` for the comparisons of shadow mode.

A module of its own: `compare` is pure, and knows neither HTTP nor metrics.
"""

import logging
from collections.abc import Iterable

from aiohttp import web

from extender.http import listeners
from extender.metrics import Metrics
from extender.shadow.compare import Finding, Shadow

log = logging.getLogger(__name__)


def routes(
    shadow: Shadow, extender_routes: Iterable[web.RouteDef]
) -> list[web.RouteDef]:
    """Return `/v1/shadow` and those of `extender_routes` that are under `/v1/`.

    The others, such as filter and bind, are dropped.
    """

    async def report(request: web.Request) -> web.Response:
        if "text/plain" in request.headers.get("Accept", ""):
            return web.Response(text=shadow.text())
        return web.json_response(shadow.report())

    readable = listeners.readable_routes(extender_routes)
    return [*readable, web.get("/v1/shadow", report)]


def report_finding(metrics: Metrics, finding: Finding) -> None:
    """Count a finding of shadow mode, and log it if it is a difference."""
    metrics.shadow.labels(finding.rule).inc()
    if finding.is_different:
        extra = {"of": finding.of, "rule": finding.rule, "why": finding.text}
        log.info("would have decided otherwise", extra=extra)
