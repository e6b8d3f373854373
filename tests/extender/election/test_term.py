"""Who answers when the lease changes hands, and that nothing of a term outlives it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender.app import Extender
from extender.election.elector import Election
from extender.election.lease import LeaseConfig
from extender.election.term import Leadership
from extender.metrics import Metrics
from extender.settings import Settings
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import ConflictError, NotFoundError
from kube.objects import Lease, LeaseSpec, Meta
from service.settings import load
from tests.support.clock import Time
from tests.support.extender import clock_of
from tests.support.servers import asking
from tests.support.until import until

WALL = clock_of(Time())


@dataclass(slots=True)
class OneLease:
    """A lease at an API server, and what others do to it."""

    lease: Lease | None = None
    version: int = 0

    async def get(self) -> Lease:
        if self.lease is None:
            raise NotFoundError(404)
        return self.lease

    async def create(self, spec: LeaseSpec) -> Lease:
        return self.put(spec)

    async def write(self, before: Lease, spec: LeaseSpec) -> Lease:
        if before != self.lease:
            raise ConflictError(409)
        return self.put(spec)

    def put(self, spec: LeaseSpec) -> Lease:
        self.version += 1
        meta = Meta(name="l", resource_version=str(self.version))
        self.lease = Lease(metadata=meta, spec=spec)
        return self.lease

    @property
    def holder(self) -> str | None:
        return self.lease.spec.holder_identity if self.lease else None


@dataclass(slots=True)
class FakeTerm:
    number: int
    is_quiet: bool = True
    log: list[str] = field(default_factory=list)

    def routes(self) -> Sequence[web.RouteDef]:
        async def who(_request: web.Request) -> web.Response:
            return web.Response(text=f"term {self.number}")

        return [web.get("/who", who)]

    def why_not_ready(self) -> str | None:
        return None

    async def run(self) -> None:
        self.log.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("ended")


async def test_each_term_has_an_extender_of_its_own_and_the_last_gives_back() -> None:
    api, terms = OneLease(), list[FakeTerm]()

    def make() -> FakeTerm:
        terms.append(FakeTerm(number=len(terms) + 1))
        return terms[-1]

    election = Election(
        api, LeaseConfig(identity="me", lease_s=0.07, bind_s=0), wall=WALL
    )
    leadership = Leadership(make, election)
    async with asking(leadership.routes()) as session:
        running = asyncio.create_task(leadership.run())
        await until(lambda: terms[0].log == ["began"])
        assert await who(session) == "term 1"

        # We could not renew in time: another has taken the lease, and gives it up.
        assert api.lease is not None
        api.put(replace_holder(api.lease, "another"))
        await until(lambda: terms[0].log == ["began", "ended"])
        api.put(replace_holder(api.lease, None))
        await until(lambda: len(terms) == 2 and terms[1].log == ["began"])

        assert await who(session) == "term 2"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert terms[1].log == ["began", "ended"]


def replace_holder(lease: Lease, who: str | None) -> LeaseSpec:
    transitions = (lease.spec.lease_transitions or 0) + 1
    return LeaseSpec(
        holder_identity=who, lease_duration_seconds=1, lease_transitions=transitions
    )


async def who(session: aiohttp.ClientSession) -> str:
    async with session.get("/who") as answer:
        return await answer.text()


@pytest.mark.parametrize(("is_quiet", "holder"), [(True, None), (False, "me")])
async def test_it_keeps_the_lease_while_a_bind_of_its_may_take_effect(
    *, is_quiet: bool, holder: str | None
) -> None:
    api, term = OneLease(), FakeTerm(number=1, is_quiet=is_quiet)
    election = Election(api, LeaseConfig(identity="me", lease_s=3600), wall=WALL)
    running = asyncio.create_task(Leadership(lambda: term, election).run())
    await until(lambda: term.log == ["began"])

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert api.holder == holder


async def test_it_gives_the_lease_back_though_its_last_write_was_cut_off() -> None:
    api = OneLease()
    election = Election(api, LeaseConfig(identity="me", lease_s=3600), wall=WALL)
    await election.tick()
    assert api.lease is not None
    api.put(api.lease.spec)  # it has got through, and nobody was told

    await election.release()

    assert api.holder is None


def test_a_second_term_can_be_made_in_the_same_process() -> None:
    metrics = Metrics(CollectorRegistry())
    client = Client(Credentials("http://127.0.0.1:1"))
    settings = load(Settings, [], {})

    made = [
        Extender(settings, client, wall=WALL, metrics=metrics).routes()
        for _ in range(2)
    ]

    assert [route.path for route in made[0]] == [route.path for route in made[1]]
