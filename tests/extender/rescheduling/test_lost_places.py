"""Places that end: with a successor, or of no use any more, many at once."""

import pytest

from extender.cache import events
from extender.rescheduling.moves import PlaceLost
from tests.extender.rescheduling.jobs import JOB, of_job
from tests.extender.rescheduling.keptplaces import (
    BOTH,
    NAMES,
    PAIR,
    WAITS,
    begin,
    ending,
    moving,
    numbered,
    place,
    worker,
    world,
)
from tests.support.caches import (
    all_reservations,
)
from tests.support.watched import (
    ALL,
    gone,
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


async def test_a_place_whose_chips_do_not_come_free_is_lost_alone() -> None:
    """The processes of a pod do not die: all others of its job need not wait."""
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH)
        w.learn(report("n2", held=ALL), *gone("a", "b"))
        w.learn(worker(0, "a2"), worker(1, "b2"))
        for _ in range(60):
            w.pass_s()
        assert w.reported == []
        assert w.why("a2", NAMES) == (WAITS.format("n2"),)

        w.pass_s()
        why = "processes of a pod that has ended have its chips"
        assert w.reported == [PlaceLost(job=JOB, uid="uid-b", why=why)]
        assert w.filter("a2", NAMES) == ["n3"]
        assert w.filter("b2", NAMES) == ["n1"]


async def test_chips_of_a_pod_that_still_ends_are_no_stuck_processes() -> None:
    async with world(*PAIR) as w:
        w.returns.keep(JOB, BOTH)
        w.learn(report("n2", held=ALL), *gone("a"), ending(PAIR[1]))
        for _ in range(90):
            w.pass_s()

        assert w.reported == []


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


# -- many at once ----------------------------------------------------------------------


#: Pods with a chip each, on n1 and n2, and their places on n3.
MANY = [
    numbered(of_job(f"p{number}", "n1", (number,), size=8), number)
    for number in range(8)
]
SPARE = [place(f"p{number}", number, "n3", (number,)) for number in range(8)]


async def test_binds_that_are_seen_at_once_are_reported_and_released_at_once() -> None:
    async with world(*MANY) as w:
        w.returns.keep(JOB, SPARE)
        w.learn(*gone(*(f"p{number}" for number in range(8))), report("n1"))
        w.learn(
            *(
                numbered(of_job(f"q{number}", "n3", (number,), size=8), number)
                for number in range(8)
            )
        )
        before = w.reports
        w.pass_s()

        assert len(w.reported) == 8
        assert w.reports == before + 1
        assert all_reservations(w.cache) == []


async def test_places_on_a_node_that_has_gone_are_reported_at_once() -> None:
    async with world(*MANY) as w:
        w.returns.keep(JOB, SPARE)
        w.returns.release(JOB, frozenset({"uid-p7"}))
        w.learn(events.NodeUpdated(name="n3"))
        for _ in range(32):
            w.pass_s()

        assert len(w.reported) == 7
        assert w.reports == 1
