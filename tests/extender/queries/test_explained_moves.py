"""What `/v1/explain` tells of a job that moves, or could, because a chip broke."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from extender.dispatch import Router
from extender.planning import plan_input
from extender.queries.routes import QueryRoutes
from extender.rescheduling.ends import End
from extender.rescheduling.mover import Mover
from extender.rescheduling.moves import Limits
from extender.rescheduling.rescheduler import Rescheduler
from tests.extender.queries.asked import NAMES, SINCE, Asked, asked
from tests.extender.rescheduling import moverworld, test_rescheduler
from tests.extender.rescheduling.jobs import broken, of_job
from tests.support.caches import cluster
from tests.support.extender import ServedWorld, world
from tests.support.servers import asking
from tests.support.watched import ALL

WHOLE = "chips 0,1,2,3,4,5,6,7"


class Ends(moverworld.Api):
    """An API server whose controllers make each pod again."""

    async def read_ends(self, leaving: Any) -> dict[str, End]:
        return dict.fromkeys(leaving, End())


@dataclass(frozen=True, slots=True)
class Moved:
    """A rescheduler beside a world, which evicts."""

    world: ServedWorld
    rescheduler: Rescheduler

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.pass_s()
            self.rescheduler.tick()
            mover = self.rescheduler._mover
            while mover is not None and mover._tasks:
                await asyncio.gather(*mover._tasks)


@asynccontextmanager
async def moving(w: ServedWorld) -> AsyncIterator[Moved]:
    api = Ends()
    found = Rescheduler(
        w.cache,
        test_rescheduler.Api(),
        clock=w.clock,
        read_size=w.job_calls.read_size,
        why_not_ready=lambda: None,
        limits=Limits(is_evicting=True),
        make_mover=lambda report: Mover(
            w.cache,
            w.apply,
            api,
            clock=w.clock,
            topology=lambda _gang: plan_input.PLAIN,
            wake=w.calls.wake,
            tell=api.tell,
            report=report,
        ),
    )
    w.dispatcher.connect(
        Router(
            permits=w.permits.carry_out,
            job_calls=w.job_calls.carry_out,
            waker=w._carry_out,
            owners=w.owners,
            rescheduler=found.carry_out,
        ).carry_out
    )
    try:
        yield Moved(w, found)
    finally:
        await found.stop()


async def test_a_job_that_moves_says_which_places_are_kept_and_what_it_waits_for() -> (
    None
):
    pair = (of_job("a", "n1", ALL), of_job("b", "n2", ALL))
    async with world(cluster(*pair, nodes=NAMES)) as w, moving(w) as it:
        await it.pass_s(1)  # the records are read
        w.learn(broken("n1", 3))
        await it.pass_s(3)
        queries = QueryRoutes(
            replace(w.sources, is_evicting=True),
            lambda: None,
            read_pod=w.pod_api.get,
            describe_move=it.rescheduler.describe,
        )
        async with asking(queries.routes()) as session:
            found = await Asked(w, session).explain("a")

    kept = "are kept for its job, which moves after a fault"
    assert (found["job_state"], found["kept_places"]) == (
        "moving",
        [f"{WHOLE} of {name} {kept}" for name in ("n2", "n3")],
    )
    assert found["job_since"] == found["rescheduling"]["since"] > SINCE
    assert found["text"].splitlines()[-2:] == [
        (
            "  advice: its job asks to be moved after faults, and is moved by itself: "
            "nothing to do, unless rescheduling says that no pod goes"
        ),
        f"  rescheduling: {found['rescheduling']['text']}",
    ]
    assert found["rescheduling"]["text"].endswith(
        "the move of its job is moving: 0 of 2 pods that go have ended"
    )


@pytest.mark.parametrize(
    ("is_evicting", "says", "is_moved"),
    [
        (True, {"fault-scheduling": "grace"}, True),
        (True, {"fault-scheduling": "off"}, False),
        (True, {}, False),
        (False, {"fault-scheduling": "grace"}, False),
    ],
)
async def test_after_a_fault_nothing_moves_a_pod_unless_its_job_and_the_setting_say_so(
    is_evicting: bool, says: dict[str, str], is_moved: bool
) -> None:
    pair = [of_job("a", "n1", ALL, says=says), of_job("b", "n2", ALL, says=says)]
    async with asked(*pair, broken("n1", 3), is_evicting=is_evicting) as it:
        found = await it.explain("a")

    assert found["job_state"] == "running"
    (advice,) = found["advice"]
    assert ("is moved by itself" in advice, "nothing moves it by itself" in advice) == (
        is_moved,
        not is_moved,
    )
