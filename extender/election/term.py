"""Terms of leadership: the HTTP server stays, and each term has a new extender.

A replica is one process, which can lead for several terms. An extender is an object in
this process, and remembers which chips it has reserved. While another replica leads,
what an extender remembers may become wrong. So each term begins with a new extender
that reads the whole cluster. The HTTP server forwards each request to the extender of
the current term, or between two terms to that of the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.election.elector import Election

log = logging.getLogger(__name__)


class LeadershipTerm(Protocol):
    """An extender for one leadership term, as the interface that `Leadership` needs."""

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the HTTP routes of this extender.

        The methods and paths are the same in every term.
        """

    def why_not_ready(self) -> str | None:
        """Return why this extender answers no HTTP request now; None if it answers."""

    async def run(self) -> None:
        """Run the background work of this extender until cancelled.

        When cancelled, wait a limited time for bind requests already sent to the API
        server. Cancel all other background requests to the API server.
        """

    @property
    def is_quiet(self) -> bool:
        """Whether all bind requests that this extender sent are finished."""


class Leadership:
    """Runs a new extender for each leadership term; forwards HTTP requests to it."""

    def __init__(
        self, make: Callable[[], LeadershipTerm], election: Election | None
    ) -> None:
        """Create the extender of the first term, without running it.

        Args:
            make: Creates an extender with an empty cache.
            election: Tells when a term begins and ends. If it is None, `run` starts the
                first extender at once, and there is only one term.
        """
        self._make = make
        self._election = election
        self._term = make()
        self._handlers = _handlers(self._term)

    def routes(self) -> list[web.RouteDef]:
        """Return HTTP routes that forward each request to the current extender."""
        return [
            web.RouteDef(
                route.method,
                route.path,
                self._forward_to(route.method, route.path),
                route.kwargs,
            )
            for route in self._term.routes()
        ]

    def why_not_ready(self) -> str | None:
        """Return why the current extender answers no request; None if it answers."""
        return self._term.why_not_ready()

    async def run(self) -> None:
        """Run an extender in each term in which this replica leads, until cancelled.

        When cancelled, release the Lease if all bind requests of the current extender
        are finished. Without an election, the only extender runs all the time.
        """
        election = self._election
        if election is None:
            await self._term.run()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(election.run(), name="election")
                while True:
                    await election.until(leads=True)
                    await self._lead(election)
        finally:
            if self._term.is_quiet:
                await election.release()

    async def _lead(self, election: Election) -> None:
        """Run the current extender until this replica stops leading; then replace it.

        New requests go to the new extender before the old one is cancelled.
        """
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self._term.run(), name="term")
            await election.until(leads=False)
            log.warning("another extender leads: what this one knew is void")
            self._term = (
                self._make()
            )  # first, so that the old one gets no more requests
            self._handlers = _handlers(self._term)
            running.cancel()

    def _forward_to(self, method: str, path: str) -> Handler:
        async def forward(request: web.Request) -> web.StreamResponse:
            return await self._handlers[method, path](request)

        return forward


def _handlers(term: LeadershipTerm) -> dict[tuple[str, str], Handler]:
    return {
        # aiohttp also allows a class of views as handler; none is used here
        (route.method, route.path): cast(Handler, route.handler)
        for route in term.routes()
    }
