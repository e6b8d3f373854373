"""Places that end: with a successor, or of no use any more, many at once."""

import pytest

from extender.cache import events
from extender.rescheduling.moves import PlaceLost
from tests.extender.rescheduling.jobs import JOB
from tests.extender.rescheduling.keptplaces import (
    NAMES,
    PAIR,
    begin,
    moving,
    world,
)
from tests.support.watched import (
    node,
    report,
    tenant,
)

# -- lost places -------------------------------------------------------------------


async def test_a_place_whose_chip_breaks_is_lost_at_once() -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.learn(report("n3", unhealthy=(5,)))
        w.pass_s()

        lost = PlaceLost(job=JOB, uid="uid-a", why="its chip 5 broke")
        assert w.reported == [lost]
        assert moving(w) == {(JOB, "n2"): 255}
        assert w.filter("a2", NAMES) == ["n1"]
        assert w.filter("b2", NAMES) == ["n2"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (node("n3", allocatable=0), "its node takes no pods"),
        (events.NodeUpdated(name="n3"), "its node takes no pods"),
        (tenant("x", "n3", (7,)), "pods of others have its chips"),
    ],
)
async def test_a_place_of_no_use_is_lost_after_half_a_minute(
    change: events.Change, why: str
) -> None:
    async with world(*PAIR) as w:
        begin(w)
        w.learn(change)
        for _ in range(30):
            w.pass_s()
        assert w.reported == []

        w.pass_s()
        assert w.reported == [PlaceLost(job=JOB, uid="uid-a", why=why)]


async def test_a_place_that_is_of_use_again_in_time_is_kept() -> None:
    async with world(*PAIR) as w:
        begin(w)
        for _ in range(5):
            w.learn(node("n3", allocatable=0))
            for _ in range(20):
                w.pass_s()
            w.learn(node("n3"))
            w.pass_s()

        assert w.reported == []


async def test_a_place_that_the_scheduler_does_not_offer_is_lost() -> None:
    async with world(*PAIR) as w:
        begin(w)
        for _ in range(31):
            w.filter("a2", ("n1", "n2"))
            w.pass_s()

        why = "the scheduler does not offer its node to the successor"
        assert w.reported == [PlaceLost(job=JOB, uid="uid-a", why=why)]
        assert w.filter("a2", ("n1", "n2")) == ["n1"]
        assert w.filter("b2", NAMES) == ["n2"]
