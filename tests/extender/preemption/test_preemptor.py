"""Room is made, kept for whom it is made, and handed over: step by step."""

from dataclasses import replace

import pytest

from extender.cache import events
from extender.preemption.attempt import Outcome
from extender.queries.explain import render_text
from extender.refusals import LEAVING
from extender.scheduling import node_filter
from scheduler_core.placement.siblings import Demands
from tests.support.caches import free, kept, known_pod, nominations
from tests.support.clock import NOW_S
from tests.support.extender import NAMES, World, evicting
from tests.support.watched import (
    HIGH,
    gone,
    high,
    low,
    member,
    node,
    pod_update,
    report,
)

RING = (4, 5, 6, 7)
WHY = "which needs its chips and has a higher priority"


#: One low pod in each ring of n1; n2 is taken by somebody who matters.
FULL = (
    low("a", "n1", (0, 1), priority=5),
    low("b", "n1", (4,)),
    low("c", "n2", range(8), priority=HIGH),
)


async def free_ring(w: World) -> None:
    """Have `b` evicted for `high`, and its chips shown to be free."""
    await w.seek_room("high")
    w.learn(*gone("b"))
    await w.tick(5)


async def test_a_ring_is_freed_and_nobody_else_gets_its_chips() -> None:
    async with evicting(*FULL, high(4), high(2, "other", 0)) as w:
        assert w.filter("high") == []
        await w.tick()
        assert (w.calls.rehearsed, w.calls.evicted) == (["b"], ["b"])
        assert free(w.cache, "n1") == (2, 3)
        assert w.filter("high") == []  # b has not gone yet

        w.learn(*gone("b"))
        await w.tick(5)  # what b had is shown to be free after a while
        assert free(w.cache, "n1") == (2, 3)
        assert w.calls.wakes > 0

        assert w.filter("high") == ["n1"]
        assert w.filter("other") == ["n1"]
        assert w.reserve("other", "n1") == (2, 3)
        assert w.reserve("high", "n1") == RING


async def test_it_is_said_on_both_and_explained() -> None:
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")

        assert w.calls.told == [
            (
                "high",
                "AscendPreempting",
                "pods of lower priority are evicted to free chips: default/b",
            ),
            (
                "b",
                "AscendPreempted",
                f"evicted for pod default/high, {WHY} (100)",
            ),
        ]
        said = "making_room: chips 4,5,6,7 of n1 are kept for it, which default/b "
        assert said + "must leave" in render_text(w.explain("high"))
        result = node_filter.filter_nodes(
            w.cache, known_pod(w.cache, "high"), NAMES, NOW_S
        )
        found = node_filter.apply_nomination(w.cache, "uid-high", result)
        assert found.texts(is_resolvable=False)["n1"] == LEAVING.text
        assert found.texts(is_resolvable=True) == {"n2": "without 4 free chips"}


async def test_who_has_a_budget_stays_and_another_ring_is_freed() -> None:
    async with evicting(*FULL, high(4)) as w:
        w.calls.says["b"] = Outcome.BUDGET
        await w.seek_room("high")
        assert w.calls.evicted == []
        assert nominations(w.cache) == {}

        await w.seek_room("high")

        assert w.calls.evicted == ["a"]


async def test_if_nobody_may_go_nobody_goes() -> None:
    async with evicting(*FULL, high(8)) as w:
        w.calls.says["a"] = Outcome.BUDGET
        for _ in range(5):
            await w.seek_room("high")

        assert (w.calls.rehearsed, w.calls.evicted) == (["a", "b"], [])
        assert nominations(w.cache) == {}


async def test_nobody_is_asked_for_chips_that_another_pod_has_been_promised() -> None:
    """The agent has mounted for one pod what a bind of another is under way for."""
    async with evicting(pod_update("bound"), high(8), *FULL[2:]) as w:
        w.reserve("bound", "n1")
        w.learn(low("mixed", "n1", range(8)))

        for _ in range(5):
            await w.seek_room("high")

        assert (w.calls.rehearsed, nominations(w.cache)) == ([], {})
        assert "uid-high" in w.preemptor._attempts.backing_off


async def test_a_bind_elsewhere_that_fails_loses_no_chips_that_are_being_freed() -> (
    None
):
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")
        nominated = dict(nominations(w.cache))
        bound = kept("uid-high", "n1", 0b1000, shape=known_pod(w.cache, "high").shape)

        w.learn(bound)
        await w.tick()
        w.learn(events.BindVoided(uid="uid-high"))

        assert nominations(w.cache) == nominated != {}


async def test_a_bind_elsewhere_ends_an_attempt_that_has_evicted_nobody() -> None:
    async with evicting(*FULL, high(4)) as w:
        w.calls.says["b"] = Outcome.FAILED
        w.filter("high")
        w.preemptor.tick()  # the dry run has no answer yet
        shape = known_pod(w.cache, "high").shape
        w.learn(kept("uid-high", "n1", 0b1000, shape=shape))

        await w.tick()

        assert (w.calls.evicted, nominations(w.cache)) == ([], {})


async def test_a_bind_with_freed_chips_that_fails_leaves_them_to_the_pod() -> None:
    async with evicting(*FULL, high(4), high(4, "other", 0)) as w:
        await free_ring(w)
        assert w.filter("high") == ["n1"]
        assert w.reserve("high", "n1") == RING

        w.learn(events.BindVoided(uid="uid-high"))

        assert w.filter("other") == []
        assert w.filter("high") == ["n1"]
        assert w.reserve("high", "n1") == RING
        await w.tick(60)  # and no longer than if no bind had come
        w.learn(events.BindVoided(uid="uid-high"))
        assert w.filter("other") == ["n1"]


async def test_chips_are_kept_for_a_time_only() -> None:
    async with evicting(*FULL, high(4), high(4, "other", 0)) as w:
        await free_ring(w)
        assert w.filter("other") == []

        await w.tick(60)  # the scheduler has not come for them

        assert w.filter("other") == ["n1"]


async def test_a_pod_that_does_not_come_to_be_bound_loses_its_chips() -> None:
    async with evicting(*FULL, high(4), high(4, "other", 0)) as w:
        await free_ring(w)
        assert w.filter("high") == ["n1"]
        assert w.filter("other") == []

        await w.tick(60)

        assert w.filter("other") == ["n1"]
        await w.seek_room("high")
        assert nominations(w.cache) == {}  # not again so soon


@pytest.mark.parametrize("how", ["gone", "bound", "ending"])
async def test_nobody_is_evicted_for_a_pod_that_no_longer_waits(how: str) -> None:
    async with evicting(*FULL, high(4)) as w:
        w.filter("high")
        wanting = high(4).pod
        seen: dict[str, events.Change] = {
            "gone": events.PodDeleted(uid="uid-high"),
            "bound": events.PodUpdated(pod=replace(wanting, node="n2")),
            "ending": events.PodUpdated(pod=replace(wanting, deleting=True)),
        }
        w.learn(seen[how])

        await w.tick()

        assert (w.calls.rehearsed, nominations(w.cache)) == ([], {})


async def test_room_for_a_pod_that_went_is_anybodys() -> None:
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")
        assert list(nominations(w.cache)) == ["uid-high"]

        w.learn(*gone("high"))
        await w.tick()

        assert nominations(w.cache) == {}
        assert free(w.cache, "n1") == (2, 3, 5, 6, 7)


async def test_the_more_important_of_two_is_served_first() -> None:
    tenants = (low("a", "n1", range(8)), low("c", "n2", range(8), priority=HIGH))
    async with evicting(*tenants, high(8, "less", 50), high(8)) as w:
        w.filter("less")
        w.filter("high")

        await w.tick()

        assert list(nominations(w.cache)) == ["uid-high"]


async def test_for_a_job_all_go_before_it_is_planned() -> None:
    tenants = (low("a", "n1", (0,)), low("b", "n2", (4,)))
    wanting = [member(f"w{n}", job="want", count=8, priority=HIGH) for n in range(2)]
    seen = (replace(each, priority=HIGH) for each in wanting)
    async with evicting(*tenants, *seen) as w:
        assert w.filter("w0") == []
        await w.tick()
        assert sorted(w.calls.evicted) == ["a", "b"]

        w.learn(*gone("a"))
        await w.tick(5)
        assert w.filter("w0") == []
        w.learn(*gone("b"))
        await w.tick(5)

        found = [w.filter("w0"), w.filter("w1")]
        assert sorted(found) == [["n1"], ["n2"]]
        assert nominations(w.cache) == {}
        told = [(name, reason) for name, reason, _ in w.calls.told]
        assert told[:2] == [("w0", "AscendPreempting"), ("w1", "AscendPreempting")]


async def test_a_pod_that_fits_elsewhere_meanwhile_goes_there() -> None:
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")
        w.learn(*gone("c"))
        await w.tick(5)

        assert w.filter("high") == ["n2"]
        assert w.reserve("high", "n2") == (0, 1, 2, 3)
        await w.tick()
        assert nominations(w.cache) != {}  # its bind may fail yet

        w.learn(pod_update("high", node="n2", count=4))
        await w.tick()
        assert nominations(w.cache) == {}


async def test_an_eviction_that_fails_in_the_middle_is_tried_again() -> None:
    async with evicting(*FULL, high(8)) as w:
        await w.seek_room("high")
        assert w.calls.evicted == ["a", "b"]
        w.learn(*gone("a"))

        await w.tick(6)

        assert list(nominations(w.cache)) == ["uid-high"]


async def test_a_pod_of_the_same_name_is_another_pod() -> None:
    spec = pod_update("high", uid="uid-new", count=4)
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")

        w.learn(events.PodDeleted(uid="uid-high"), spec)
        await w.tick()

        assert nominations(w.cache) == {}


def of_kind(seen: events.PodUpdated, kind: str) -> events.PodUpdated:
    assert seen.member is not None
    return replace(seen, member=replace(seen.member, demands=Demands(kind=kind)))


def two_kinds() -> list[events.PodUpdated]:
    """A job of two pods that may not have the same nodes."""
    return [
        of_kind(member("w0", job="want", priority=HIGH), "one"),
        of_kind(member("w1", job="want", priority=HIGH), "two"),
    ]


#: n2 costs the least, after n1.
TAKEN = (
    low("a", "n1", range(8)),
    low("b", "n2", range(8)),
    low("c", "n3", range(8), priority=5),
)


async def evicted_for_kinds(w: World, **asked: tuple[str, ...]) -> list[str]:
    """Ask about pods on nodes, and return which pods are evicted."""
    for name, names in asked.items():
        w.filter(name, names)
    await w.tick()
    await w.tick()
    return sorted(w.calls.evicted)


async def test_pods_go_where_each_kind_of_a_job_may_be() -> None:
    async with evicting(node("n3"), report("n3"), *TAKEN, *two_kinds()) as w:
        assert await evicted_for_kinds(w, w0=("n1", "n2")) == []  # nobody asked for w1

        assert await evicted_for_kinds(w, w1=("n3",)) == ["a", "c"]


async def test_nobody_goes_if_one_kind_of_a_job_may_be_nowhere() -> None:
    async with evicting(node("n3"), report("n3"), *TAKEN, *two_kinds()) as w:
        for _ in range(3):
            assert await evicted_for_kinds(w, w0=("n1", "n2", "n3")) == []
