"""Faults that the cache reports, followed from the first to the last second."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.dispatch import Dispatcher, Router, ignore
from extender.gang.gang import Gang
from extender.gang.membership import SizeSource
from extender.gang.size import Size
from extender.rescheduling.rescheduler import Rescheduler
from scheduler_core.wire.pods import NpuPod
from tests.extender.rescheduling.jobs import BY_POD, GRACE, JOB, broken, lone, of_job
from tests.support.caches import all_reservations, cluster
from tests.support.clock import Time
from tests.support.extender import clock_of
from tests.support.watched import claim, gone, node, report, running

NAMES = ("n1", "n2", "n3")
ALL = range(8)
GROUP = SizeSource(path="/apis/groups/j", kind="PodGroup")


@dataclass(slots=True)
class Api:
    """What is asked of the API server, written down."""

    #: what the PodGroup says, or why it cannot be read
    group: Mapping[str, str] | str = field(default_factory=dict)
    groups_read: int = 0
    #: (pod, reason, sentence) of each event
    told: list[tuple[str, str, str]] = field(default_factory=list)

    async def group_wishes(self, source: SizeSource) -> Mapping[str, str] | str:
        assert source == GROUP
        self.groups_read += 1
        return self.group

    def tell_fault(self, pod: NpuPod, reason: str, text: str) -> None:
        self.told.append((pod.name, reason, text))

    def reasons(self) -> list[tuple[str, str]]:
        return [(name, reason) for name, reason, _ in self.told]


class World:
    """A cache whose effects reach a rescheduler, in simulated time."""

    def __init__(self, cache: Cache) -> None:
        self.cache, self.api, self.time = cache, Api(), Time()
        #: why the cache is not complete; None if it is
        self.waits: str | None = None
        self.sizes_asked: list[str] = []
        clock = clock_of(self.time)
        dispatcher = Dispatcher(cache, clock)
        self.rescheduler = Rescheduler(
            cache,
            self.api,
            clock=clock,
            read_size=self._read_size,
            why_not_ready=lambda: self.waits,
        )
        router = Router(
            permits=ignore,
            job_calls=ignore,
            waker=ignore,
            owners=dict.fromkeys(Owner, ignore),
            rescheduler=self.rescheduler.carry_out,
        )
        dispatcher.connect(router.carry_out)
        self._apply = dispatcher.apply

    def _read_size(self, gang: Gang) -> None:
        self.sizes_asked.append(gang.job)

    def learn(self, *changes: events.Change) -> None:
        for change in changes:
            self._apply(change)

    def tick(self, seconds: float = 1.0) -> None:
        self.time.pass_s(seconds)
        self.learn(events.Ticked())
        self.rescheduler.tick()

    async def settled(self) -> None:
        while self.rescheduler._tasks:
            await asyncio.gather(*self.rescheduler._tasks)

    def describe(self, name: str) -> Mapping[str, Any]:
        return self.rescheduler.describe(f"uid-{name}")


@asynccontextmanager
async def world(*seen: events.Change) -> AsyncIterator[World]:
    found = World(cluster(*seen, nodes=NAMES))
    try:
        yield found
    finally:
        await found.rescheduler.stop()


def pair(**parts: Any) -> list[events.PodUpdated]:
    return [of_job("a", "n1", ALL, **parts), of_job("b", "n2", ALL, **parts)]


MOVED = [("a", "AscendWouldMove")]


async def test_a_broken_chip_is_judged_as_its_report_comes() -> None:
    async with world(*pair()) as found:
        found.learn(broken("n1", 3))

        ((name, reason, text),) = found.api.told
        assert (name, reason) == MOVED[0]
        assert text.startswith("chip 3 of this pod is broken (SeparateNPU 80E01801). ")
        assert "all pods of its job would go (a, b)" in text
        assert "a on n3 (chips 0,1,2,3,4,5,6,7); 1 would return" in text
        assert all_reservations(found.cache) == []


async def test_all_pods_of_the_job_are_explained_and_no_others() -> None:
    async with world(*pair(), lone("x", "n3", (0,))) as found:
        found.learn(broken("n1", 3))

        assert found.describe("a")["assessment"] == "no spare"
        assert found.describe("b") == found.describe("a")
        assert found.describe("x") == {}

        found.learn(*gone("x"))
        for _ in range(3):  # until the chips are known to be free
            found.tick()
        assert found.describe("b") == {
            "assessment": "moves",
            "text": found.describe("a")["text"],
            "leaving": ["a", "b"],
            "places": {"a": "n3 (chips 0,1,2,3,4,5,6,7)"},
        }


async def test_a_soft_fault_is_judged_only_after_it_has_lasted() -> None:
    async with world(*pair()) as found:
        found.learn(broken("n1", 3, level="RestartRequest"))
        for _ in range(9):
            found.tick()
        assert (found.api.told, found.describe("a")) == ([], {})

        found.tick()
        assert found.api.reasons() == MOVED


async def test_a_fault_that_is_over_leaves_nothing() -> None:
    async with world(*pair()) as found:
        found.learn(broken("n1", 3))
        found.learn(report("n1", recovering=(3,)))
        assert found.describe("a") == {}

        found.learn(report("n1"))
        found.tick(60)
        assert found.api.reasons() == MOVED
        assert not found.rescheduler._places


async def test_a_pod_that_ends_leaves_nothing() -> None:
    async with world(*pair()) as found:
        found.learn(broken("n1", 3))

        found.learn(*gone("a"))
        found.tick()

        assert found.describe("b") == {}


async def test_a_pod_that_is_being_deleted_goes_already() -> None:
    a, b = pair()
    async with world(replace(a, pod=replace(a.pod, deleting=True)), b) as found:
        found.learn(broken("n1", 3))
        found.tick()

        assert found.api.told == []


async def test_a_pod_is_judged_once_its_agent_has_confirmed_the_chip() -> None:
    known = lone("a", "n1", ALL)
    waiting = running("a", claim(ALL), "n1", 8)
    async with world(replace(waiting, wishes=known.wishes)) as found:
        found.learn(broken("n1", 3))
        found.tick()
        assert found.api.told == []

        found.learn(known)
        found.tick()
        assert found.api.reasons() == MOVED


async def test_a_pod_that_gets_a_broken_chip_later_is_found() -> None:
    async with world() as found:
        found.learn(broken("n1", 3))
        found.tick()
        found.learn(lone("a", "n1", (3,)))
        found.tick()

        assert found.api.reasons() == MOVED


async def test_a_pod_whose_label_is_corrected_is_judged_again() -> None:
    wrong = lone("a", "n1", ALL, fault_scheduling="Grace")
    async with world(wrong) as found:
        found.learn(broken("n1", 3))
        assert found.api.reasons() == [("a", "AscendNotMoved")]

        found.learn(lone("a", "n1", ALL))
        found.tick()
        assert found.api.reasons()[1:] == MOVED


async def test_a_job_that_asks_for_nothing_is_told_nothing() -> None:
    async with world(*pair(says={})) as found:
        found.learn(broken("n1", 3))
        found.tick(60)

        assert (found.api.told, found.describe("a")) == ([], {})


async def test_a_silent_agent_is_no_fault_and_ends_what_was_judged() -> None:
    async with world(*pair()) as found:
        found.learn(broken("n1", 3))
        found.tick(901)

        assert found.describe("a") == {}

        now_s = found.time.now_s
        found.learn(broken("n1", 3, update_time=now_s))
        found.learn(report("n2", update_time=now_s), report("n3", update_time=now_s))
        found.tick()
        assert found.describe("a")["assessment"] == "moves"


async def test_nothing_is_judged_before_the_cache_is_complete() -> None:
    async with world(*pair()) as found:
        found.waits = "waiting for pods"
        found.learn(broken("n1", 3))
        assert found.api.told == []

        found.waits = None
        found.tick()
        assert found.api.reasons() == MOVED


async def test_a_second_fault_joins_the_first() -> None:
    async with world(*pair(says=BY_POD), node("n4"), report("n4")) as found:
        found.learn(broken("n1", 3))
        assert found.describe("a")["leaving"] == ["a"]

        found.learn(broken("n2", 1))
        assert found.describe("a")["leaving"] == ["b", "a"]
        assert found.api.reasons()[1:] == [
            ("a", "AscendWouldMove"),
            ("b", "AscendWouldMove"),
        ]


async def test_what_the_pod_group_says_is_read_once_while_it_lasts() -> None:
    async with world(*pair(says={}, source=GROUP)) as found:
        found.learn(events.SizeRead(job=JOB, size=Size(count=2, least=2)))
        found.api.group = GRACE
        found.learn(broken("n1", 3))
        assert found.describe("a")["assessment"] == "unknown"
        await found.settled()

        assert found.api.reasons() == MOVED
        for _ in range(30):
            found.learn(report("n3"))
            found.tick()
            await found.settled()
        assert found.api.groups_read == 1

        found.api.group = {"fault-scheduling": "off"}
        for _ in range(61):
            found.learn(report("n3"))
            found.tick()
            await found.settled()
        assert (found.api.groups_read, found.describe("a")) == (2, {})


async def test_a_pod_group_that_cannot_be_read_is_told_to_a_job_that_asks() -> None:
    async with world(*pair(source=GROUP)) as found:
        found.learn(events.SizeRead(job=JOB, size=Size(count=2, least=2)))
        found.api.group = "its PodGroup cannot be read"
        found.learn(broken("n1", 3))
        await found.settled()

        ((_, reason, text),) = found.api.told
        assert reason == "AscendNotMoved"
        assert ": its PodGroup cannot be read. If the pod" in text


async def test_the_size_of_a_job_is_asked_for_while_it_is_not_known() -> None:
    source = SizeSource(path="/apis/x", kind="JobSet")
    async with world(*pair(size=None, source=source)) as found:
        found.learn(broken("n1", 3))
        assert found.sizes_asked == [JOB]

        found.learn(events.SizeRead(job=JOB, size=None, problem="it cannot be read"))
        found.tick()
        assert found.sizes_asked == [JOB, JOB], "a read that failed is tried again"
        assert found.api.reasons() == [("a", "AscendNotMoved")]

        found.learn(events.SizeRead(job=JOB, size=Size(count=2, least=2)))
        found.tick()
        assert found.api.reasons()[1:] == MOVED


async def test_while_nothing_is_broken_nothing_is_looked_at() -> None:
    async with world(*pair()) as found:
        before = found.rescheduler._state
        found.learn(report("n1", update_time=found.time.now_s + 1))
        found.learn(report("n1", network_unhealthy=(3,)))
        found.learn(of_job("c", "", ALL))
        found.tick()

        assert found.rescheduler._state is before
        assert found.rescheduler._places == {}
