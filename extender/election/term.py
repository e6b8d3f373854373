"""Who answers: the extender of the present term, and nobody between two terms.

An extender remembers what it has decided until the cluster shows it. When another has
led meanwhile, all of that may be wrong; so each term has an extender of its own, which
reads the whole cluster anew. The server stays, and asks whoever is in office.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from extender.election.elector import Election

log = logging.getLogger(__name__)


class Term(Protocol):
    """An extender, as the office needs it."""

    def routes(self) -> Sequence[web.RouteDef]:
        """What it answers, by method and path: the same of each."""

    def why_not_ready(self) -> str | None:
        """Why it answers nothing yet; None: it does."""

    async def run(self) -> None:
        """Follow the cluster until cancelled, and end what is under way then."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing that it began can still take effect."""


class Office:
    """The one place that answers. Owner of the extender in office."""

    def __init__(self, make: Callable[[], Term], election: Election | None) -> None:
        """Let the first extender wait for its term.

        Args:
            make: Makes an extender that knows nothing yet.
            election: None: the first one leads for ever.
        """
        self._make = make
        self._election = election
        self._term = make()
        self._answers = _answers(self._term)

    def routes(self) -> list[web.RouteDef]:
        """What to serve: each route asks whoever is in office then."""
        return [
            web.RouteDef(
                route.method,
                route.path,
                self._asking(route.method, route.path),
                route.kwargs,
            )
            for route in self._term.routes()
        ]

    def why_not_ready(self) -> str | None:
        """Why nothing is answered now; None: it is."""
        return self._term.why_not_ready()

    async def run(self) -> None:
        """Lead whenever it is our turn, until cancelled."""
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
        """Serve one term, to its end."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self._term.run(), name="term")
            await election.until(leads=False)
            log.warning("another extender leads: what this one knew is void")
            self._term = self._make()  # at once: the old one is to answer nobody
            self._answers = _answers(self._term)
            running.cancel()

    def _asking(self, method: str, path: str) -> Handler:
        async def ask(request: web.Request) -> web.StreamResponse:
            return await self._answers[method, path](request)

        return ask


def _answers(term: Term) -> dict[tuple[str, str], Handler]:
    return {
        # a handler may also be a class of views: there is none here
        (route.method, route.path): cast(Handler, route.handler)
        for route in term.routes()
    }
