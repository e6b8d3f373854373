"""Terms of leading: the HTTP server stays, and each term has a new extender.

An extender remembers its decisions until the cluster shows them. After another extender
has led, they may be wrong. So the extender of a new term reads the whole cluster. The
server forwards each request to the extender of the current term.
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
    """An extender for one term of leading, as the interface that `Leadership` needs."""

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the HTTP routes of this extender.

        All extenders have the same methods and paths.
        """

    def why_not_ready(self) -> str | None:
        """Return the reason why this extender cannot answer now; None if it can."""

    async def run(self) -> None:
        """Watch the cluster until cancelled, then finish or abort open requests."""

    @property
    def is_quiet(self) -> bool:
        """Whether all bind requests that this extender sent are finished.

        Then none of them can take effect later.
        """


class Leadership:
    """Runs a new extender for each term of leading. Owner of the current extender."""

    def __init__(
        self, make: Callable[[], LeadershipTerm], election: Election | None
    ) -> None:
        """Create the first extender, which waits for its term.

        Args:
            make: Creates an extender with an empty cache.
            election: Tells when a term begins and ends. If it is None, the first
                extender leads for ever.
        """
        self._make = make
        self._election = election
        self._term = make()
        self._handlers = _handlers(self._term)

    def routes(self) -> list[web.RouteDef]:
        """Return routes with the methods and paths that all extenders have.

        Their handlers forward each request to the extender of the current term.
        """
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
        """Return the reason why the current extender cannot answer; None if it can."""
        return self._term.why_not_ready()

    async def run(self) -> None:
        """Run the current extender whenever this replica leads, until cancelled.

        At the end the Lease is released if all bind requests of this replica are
        finished.
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
        """Run the current extender until this replica does not lead; then replace it.

        The replacement is a new extender, created before the old one's run is
        cancelled. So the old one gets no more requests.
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
