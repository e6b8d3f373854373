"""Room is made, kept for whom it is made, and handed over: step by step."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.planning.planner import Planner
from extender.preemption.attempt import Outcome, Victim
from extender.preemption.preemptor import Preemptor
from extender.queries import explain
from extender.scheduling import node_filter, reserve
from extender.scheduling.decisions import LastDecisions
from extender.scheduling.reserve import Choice
from scheduler_core.node import chips
from scheduler_core.wire.pods import NpuPod
from tests.extender.clusters import NOW_S, Spec, cluster, free, pod
from tests.extender.jobpods import member
from tests.extender.jobsapi import Jobs
from tests.extender.preemption.test_choosing_victims import HIGH, high, low

NAMES = ("n1", "n2")
RING = (4, 5, 6, 7)
WHY = "which needs its chips and has a higher priority"


@dataclass(slots=True)
class Api:
    """An Eviction API that a test answers for."""

    #: {name of a pod: what is answered}; all others may go
    says: dict[str, Outcome] = field(default_factory=dict)
    #: names of the pods that were rehearsed, and evicted
    rehearsed: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    wakes: int = 0

    async def evict(self, victim: Victim, *, rehearse: bool) -> Outcome:
        (self.rehearsed if rehearse else self.evicted).append(victim.name)
        return self.says.get(victim.name, Outcome.YES)

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        self.told.append((pod.name, reason, text))

    def wake(self) -> None:
        self.wakes += 1


@dataclass(slots=True)
class World:
    cache: Cache
    api: Api
    preemptor: Preemptor
    planner: Planner
    clock: Clock
    now_s: list[float]

    def filter(self, name: str, names: Sequence[str] = NAMES) -> list[str]:
        """What the server does with a filter: the nodes that are left."""
        wanting = self.cache.pods[f"uid-{name}"]
        self.preemptor.reserve_freed_chips(wanting, names)
        result = self.planner.filter_nodes(wanting, names)
        if result is None:
            result = node_filter.filter_nodes(self.cache, wanting, names, self.now_s[0])
        if not result.fitting:
            self.preemptor.refused(wanting, names)
        return list(result.fitting)

    def learn(self, *found: events.Change) -> None:
        for each in found:
            step(self.cache, each, self.now_s[0])
            self.planner.carry_out_effects()

    async def tick(self, seconds: float = 1.0) -> None:
        """Let time pass, and what was begun come to its end."""
        self.now_s[0] += seconds
        self.learn(events.Ticked())
        self.planner.tick()
        self.preemptor.tick()
        await self.settled()

    async def settled(self) -> None:
        """Let what was begun come to its end."""
        while self.preemptor._tasks:
            await asyncio.gather(*self.preemptor._tasks)

    def bind(self, name: str, node: str) -> tuple[int, ...] | str:
        """The chips that bind gives, or why none."""
        made = reserve.choose_chips(
            self.cache,
            self.cache.pods[f"uid-{name}"],
            node,
            now_s=self.now_s[0],
            now_ns=int(self.now_s[0] * 1e9),
        )
        if not isinstance(made, Choice):
            return made.text
        self.learn(made.reservation)
        return chips.ids_of(made.reservation.chips)

    def explained(self, name: str) -> str:
        wanting = self.cache.pods[f"uid-{name}"]
        return explain.explain(
            self.cache, LastDecisions(), wanting, name=name, now_s=self.now_s[0]
        ).text


@asynccontextmanager
async def world(*seen: events.Change) -> AsyncIterator[World]:
    now_s = [NOW_S]
    clock = Clock(now_s=lambda: now_s[0], now_ns=lambda: int(now_s[0] * 1e9))
    cache = cluster(*seen, nodes=NAMES)
    api = Api()
    planner = Planner(cache, Jobs(), clock=clock)
    preemptor = Preemptor(cache, api, clock=clock, why_wait=planner.why_wait)
    yield World(cache, api, preemptor, planner, clock, now_s)
    await preemptor.stop()
    await planner.stop()


#: One low pod in each ring of n1; n2 is taken by somebody who matters.
FULL = (
    low("a", "n1", (0, 1), priority=5),
    low("b", "n1", (4,)),
    low("c", "n2", range(8), priority=HIGH),
)


async def test_a_ring_is_freed_and_nobody_else_gets_its_chips() -> None:
    async with world(*FULL, high(4), high(2, "other", 0)) as w:
        assert w.filter("high") == []
        await w.tick()
        assert (w.api.rehearsed, w.api.evicted) == (["b"], ["b"])
        assert free(w.cache, "n1") == (2, 3)
        assert w.filter("high") == []  # b has not gone yet

        w.learn(events.PodDeleted(uid="uid-b"))
        await w.tick(5)  # what b had is shown to be free after a while
        assert free(w.cache, "n1") == (2, 3)
        assert w.api.wakes > 0

        assert w.filter("high") == ["n1"]
        assert w.filter("other") == ["n1"]
        assert w.bind("other", "n1") == (2, 3)
        assert w.bind("high", "n1") == RING


async def test_it_is_said_on_both_and_explained() -> None:
    async with world(*FULL, high(4)) as w:
        w.filter("high")
        await w.tick()

        assert w.api.told == [
            (
                "high",
                "AscendMakingRoom",
                "pods of lower priority are evicted to free chips: default/b",
            ),
            (
                "b",
                "AscendPreempted",
                f"evicted for pod default/high, {WHY} (100)",
            ),
        ]
        said = "making_room: chips 4,5,6,7 of n1 are kept for it, which default/b "
        assert said + "must leave" in w.explained("high")
        result = node_filter.filter_nodes(
            w.cache, w.cache.pods["uid-high"], NAMES, NOW_S
        )
        found = node_filter.apply_nomination(w.cache, "uid-high", result)
        assert found.texts(is_resolvable=False)["n1"] == node_filter.LEAVING.text
        assert found.texts(is_resolvable=True) == {"n2": "without 4 free chips"}


async def test_who_has_a_budget_stays_and_another_ring_is_freed() -> None:
    async with world(*FULL, high(4)) as w:
        w.api.says["b"] = Outcome.BUDGET
        w.filter("high")
        await w.tick()
        assert w.api.evicted == []
        assert w.cache.nominations == {}

        w.filter("high")
        await w.tick()

        assert w.api.evicted == ["a"]


async def test_if_nobody_may_go_nobody_goes() -> None:
    async with world(*FULL, high(8)) as w:
        w.api.says["a"] = Outcome.BUDGET
        for _ in range(5):
            w.filter("high")
            await w.tick()

        assert (w.api.rehearsed, w.api.evicted) == (["a", "b"], [])
        assert w.cache.nominations == {}


async def test_chips_are_kept_for_a_time_only() -> None:
    async with world(*FULL, high(4), high(4, "other", 0)) as w:
        w.filter("high")
        await w.tick()
        w.learn(events.PodDeleted(uid="uid-b"))
        await w.tick(5)
        assert w.filter("other") == []

        await w.tick(60)  # the scheduler has not come for them

        assert w.filter("other") == ["n1"]


async def test_a_pod_that_does_not_come_to_be_bound_loses_its_chips() -> None:
    async with world(*FULL, high(4), high(4, "other", 0)) as w:
        w.filter("high")
        await w.tick()
        w.learn(events.PodDeleted(uid="uid-b"))
        await w.tick(5)
        assert w.filter("high") == ["n1"]
        assert w.filter("other") == []

        await w.tick(60)

        assert w.filter("other") == ["n1"]
        w.filter("high")
        await w.tick()
        assert w.cache.nominations == {}  # not again so soon


@pytest.mark.parametrize("how", ["gone", "bound", "ending"])
async def test_nobody_is_evicted_for_a_pod_that_no_longer_waits(how: str) -> None:
    async with world(*FULL, high(4)) as w:
        w.filter("high")
        wanting = high(4).pod
        seen: dict[str, events.Change] = {
            "gone": events.PodDeleted(uid="uid-high"),
            "bound": events.PodUpdated(pod=replace(wanting, node="n2")),
            "ending": events.PodUpdated(pod=replace(wanting, deleting=True)),
        }
        w.learn(seen[how])

        await w.tick()

        assert (w.api.rehearsed, w.cache.nominations) == ([], {})


async def test_room_for_a_pod_that_went_is_anybodys() -> None:
    async with world(*FULL, high(4)) as w:
        w.filter("high")
        await w.tick()
        assert list(w.cache.nominations) == ["uid-high"]

        w.learn(events.PodDeleted(uid="uid-high"))
        await w.tick()

        assert w.cache.nominations == {}
        assert free(w.cache, "n1") == (2, 3, 5, 6, 7)


async def test_the_more_important_of_two_is_served_first() -> None:
    tenants = (low("a", "n1", range(8)), low("c", "n2", range(8), priority=HIGH))
    async with world(*tenants, high(8, "less", 50), high(8)) as w:
        w.filter("less")
        w.filter("high")

        await w.tick()

        assert list(w.cache.nominations) == ["uid-high"]


async def test_for_a_job_all_go_before_it_is_planned() -> None:
    tenants = (low("a", "n1", (0,)), low("b", "n2", (4,)))
    wanting = [member(f"w{n}", job="want", count=8, priority=HIGH) for n in range(2)]
    seen = (replace(each, priority=HIGH) for each in wanting)
    async with world(*tenants, *seen) as w:
        assert w.filter("w0") == []
        await w.tick()
        assert sorted(w.api.evicted) == ["a", "b"]

        w.learn(events.PodDeleted(uid="uid-a"))
        await w.tick(5)
        assert w.filter("w0") == []
        w.learn(events.PodDeleted(uid="uid-b"))
        await w.tick(5)

        found = [w.filter("w0"), w.filter("w1")]
        assert sorted(found) == [["n1"], ["n2"]]
        assert w.cache.nominations == {}
        told = [(name, reason) for name, reason, _ in w.api.told]
        assert told[:2] == [("w0", "AscendMakingRoom"), ("w1", "AscendMakingRoom")]


async def test_a_pod_that_fits_elsewhere_meanwhile_goes_there() -> None:
    async with world(*FULL, high(4)) as w:
        w.filter("high")
        await w.tick()
        w.learn(events.PodDeleted(uid="uid-c"))
        await w.tick(5)

        assert w.filter("high") == ["n2"]
        assert w.bind("high", "n2") == (0, 1, 2, 3)

        await w.tick()
        assert w.cache.nominations == {}


async def test_an_eviction_that_fails_in_the_middle_is_tried_again() -> None:
    async with world(*FULL, high(8)) as w:
        w.filter("high")
        await w.tick()
        assert w.api.evicted == ["a", "b"]
        w.learn(events.PodDeleted(uid="uid-a"))

        await w.tick(6)

        assert list(w.cache.nominations) == ["uid-high"]


async def test_a_pod_of_the_same_name_is_another_pod() -> None:
    spec = Spec(name="high", uid="uid-new", count=4)
    async with world(*FULL, high(4)) as w:
        w.filter("high")
        await w.tick()

        w.learn(events.PodDeleted(uid="uid-high"), events.PodUpdated(pod=pod(spec)))
        await w.tick()

        assert w.cache.nominations == {}
