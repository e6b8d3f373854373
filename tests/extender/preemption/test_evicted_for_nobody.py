"""Nobody goes for a pod that could not take what he leaves, or no longer wants it."""

from dataclasses import replace

import pytest

from extender.cache import events
from scheduler_core.wire.pods import RawContainer, RawEnv
from tests.extender.preemption.test_preemptor import FULL, RING
from tests.support.caches import (
    apply,
    bind,
    cluster,
    free,
    nominations,
    only_gang,
    reservations,
    set_limits,
)
from tests.support.extender import evicting
from tests.support.watched import (
    HIGH,
    RESOURCE,
    gone,
    high,
    low,
    member,
    pod,
    pod_update,
)

LOST = events.Ticked(lost="pods")
LITERAL = RawContainer(
    name="c",
    limits={RESOURCE: "4"},
    env=(RawEnv(name="ASCEND_VISIBLE_DEVICES", value="0,1,2,3"),),
)


def wanting(name: str, *, job: str = "want", size: int = 2) -> events.PodUpdated:
    """A pod of a job that is more important than others."""
    seen = member(name, job=job, size=size, count=8, priority=HIGH)
    return replace(seen, priority=HIGH)


#: A job of two that needs two whole nodes, and who is there.
JOB = (low("a", "n1", (0,)), low("b", "n2", (4,)), wanting("w0"), wanting("w1"))


async def test_nobody_goes_for_a_pod_that_may_go_nowhere() -> None:
    refused = pod("high", count=4, containers=(LITERAL,))
    assert refused.problem
    async with evicting(*FULL, events.PodUpdated(pod=refused, priority=HIGH)) as w:
        assert w.filter("high") == []
        await w.tick()

        assert (w.calls.rehearsed, nominations(w.cache)) == ([], {})


async def test_pods_that_may_go_nowhere_take_nobody_s_turn() -> None:
    hopeless = [
        pod_update(name, count=4, containers=(LITERAL,), priority=HIGH + 1)
        for name in ("h0", "h1", "h2")
    ]
    async with evicting(*FULL, *hopeless, high(4)) as w:
        for name in ("h0", "h1", "h2", "high"):
            assert w.filter(name) == []
        await w.tick()

        assert list(nominations(w.cache)) == ["uid-high"]


async def test_nobody_goes_for_a_job_that_is_not_tried_again_yet() -> None:
    async with evicting(*JOB) as w:
        gang = only_gang(w.cache)
        gang.plan.again_s = w.time.now_s + 60
        assert w.filter("w0") == []
        await w.tick()
        assert (w.calls.rehearsed, nominations(w.cache)) == ([], {})

        gang.plan.again_s = 0.0
        await w.seek_room("w0")
        assert sorted(w.calls.evicted) == ["a", "b"]


async def test_nobody_goes_for_a_job_too_large_to_be_bound_together() -> None:
    async with evicting(*JOB) as w:
        set_limits(w.cache, permit_s=0.01)
        assert w.filter("w0") == []
        await w.tick()

        assert (w.calls.rehearsed, nominations(w.cache)) == ([], {})


async def test_nobody_goes_if_the_pod_went_while_it_was_asked_who_may() -> None:
    async with evicting(*FULL, high(4)) as w:
        w.filter("high")
        w.preemptor.tick()
        assert list(nominations(w.cache)) == ["uid-high"]

        w.learn(*gone("high"))
        await w.settled()

        assert (w.calls.rehearsed, w.calls.evicted) == (["b"], [])
        assert nominations(w.cache) == {}


async def test_a_job_of_which_a_pod_was_made_anew_gets_room_all_the_same() -> None:
    async with evicting(*JOB) as w:
        w.filter("w0")
        anew = wanting("w0")
        anew = replace(anew, pod=replace(anew.pod, uid="uid-new"))
        w.learn(events.PodDeleted(uid="uid-w0"), anew)

        await w.tick()

        assert sorted(w.calls.evicted) == ["a", "b"]


async def test_a_pod_that_joins_a_job_has_no_room_of_its_own_any_more() -> None:
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")
        assert list(nominations(w.cache)) == ["uid-high"]

        w.learn(replace(high(4), member=wanting("high").member))
        await w.tick()

        assert nominations(w.cache) == {}


@pytest.mark.parametrize("name", ["high", "w0"])
async def test_what_was_freed_stays_kept_while_nothing_can_be_placed(name: str) -> None:
    seen = (*FULL, high(4)) if name == "high" else JOB
    async with evicting(*seen) as w:
        await w.seek_room(name)
        for victim in ("a", "b"):
            if victim in w.calls.evicted:
                w.learn(events.PodDeleted(uid=f"uid-{victim}"))
        await w.tick(5)
        nominated = dict(nominations(w.cache))
        assert nominated

        w.learn(LOST)
        assert w.filter(name) == []
        assert nominations(w.cache) == nominated
        w.learn(events.Ticked())
        assert w.filter(name, ["n2"]) == []
        assert nominations(w.cache) == nominated

        assert w.filter(name) != []
        assert nominations(w.cache) == {}


async def test_a_pod_that_joins_a_job_gives_back_what_was_freed_for_it() -> None:
    async with evicting(*FULL, high(4)) as w:
        await w.seek_room("high")
        w.learn(*gone("b"))
        await w.tick(5)
        assert w.filter("high") == ["n1"]

        w.learn(replace(high(4), member=wanting("high").member), wanting("w1"))
        await w.tick()

        assert reservations(w.cache) == {}  # it is to come with its job


def test_a_promise_on_another_node_takes_the_place_of_the_one_before() -> None:
    cache = cluster(nodes=("n1", "n2"))
    wanted = pod("p", count=4)
    apply(cache, events.PodUpdated(pod=wanted))
    reservation = bind(cache, wanted, "n1").reservation

    apply(cache, reservation._replace(node="n2"))

    assert (free(cache, "n1"), free(cache, "n2")) == (tuple(range(8)), RING)
    apply(cache, events.BindVoided(uid=wanted.uid))
    assert free(cache, "n2") == tuple(range(8))
