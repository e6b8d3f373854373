"""Effects are carried out one after the other, in the order in which they arose."""

import pytest

from extender.cache import events
from extender.cache.reservations import Owner
from extender.dispatch import Dispatcher, Router
from extender.gang import events as gang_events
from tests.support.caches import bind, cluster, kept
from tests.support.clock import Time
from tests.support.extender import clock_of
from tests.support.watched import gone, pod, pod_update, report

CLOCK = clock_of(Time())


def test_what_an_effect_causes_comes_after_it() -> None:
    cache = cluster(nodes=("n1", "n2"))
    dispatcher = Dispatcher(cache, CLOCK)
    seen: list[str] = []

    def carry_out(effect: events.Effect) -> None:
        assert isinstance(effect, events.NodesImproved)
        seen.append(f"begin {sorted(effect.nodes)}")
        if "n1" in effect.nodes:
            dispatcher.apply(report("n2", held=()))
        seen.append("end")

    dispatcher.apply(report("n1", held=(0,)))
    dispatcher.apply(report("n2", held=(0,)))
    dispatcher.connect(carry_out)
    dispatcher.apply(report("n1", held=()))

    assert seen == ["begin ['n1']", "end", "begin ['n2']", "end"]


def test_a_part_that_fails_stops_no_later_effect() -> None:
    cache = cluster(nodes=("n1", "n2"))
    dispatcher = Dispatcher(cache, CLOCK)
    for name in ("n1", "n2"):
        dispatcher.apply(report(name, held=(0,)))
    seen: list[events.Effect] = []

    def carry_out(effect: events.Effect) -> None:
        seen.append(effect)
        if len(seen) == 1:
            raise LookupError

    dispatcher.connect(carry_out)
    with pytest.raises(LookupError):
        dispatcher.apply(report("n1"))
    dispatcher.apply(report("n2"))

    assert seen == [
        events.NodesImproved(nodes=frozenset({name})) for name in ("n1", "n2")
    ]


def test_chips_that_are_kept_for_another_are_a_conflict() -> None:
    cache = cluster(pod_update("p"))
    first = bind(cache, pod("p"), "n1").reservation

    conflict = Dispatcher(cache, CLOCK).apply(kept("uid-other", "n1", first.chips))

    assert conflict is not None
    assert (conflict.existing, conflict.wanted.kept_for) == (first, "uid-other")


@pytest.mark.parametrize("owner", list(Owner))
def test_the_owner_of_a_reservation_hears_of_its_end(owner: Owner) -> None:
    heard: list[str] = []

    def part(name: str) -> None:
        heard.append(name)

    owners = {each: lambda _effect, each=each: part(each) for each in Owner}
    router = Router(
        permits=lambda _: part("permits"),
        job_calls=lambda _: part("calls"),
        waker=lambda _: part("waker"),
        announcer=lambda _: part("announcer"),
        owners=owners,
    )
    cache = cluster(pod_update("p"))
    dispatcher = Dispatcher(cache, CLOCK)
    dispatcher.connect(router.carry_out)
    dispatcher.apply(kept("uid-p", "n1", 1, owner=owner, shape=pod("p").shape))

    dispatcher.apply(*gone("p"))

    assert heard[0] == owner


@pytest.mark.parametrize(
    ("effect", "part"),
    [
        (gang_events.WakeScheduler(), "waker"),
        (gang_events.RefuseBind(call=1, text="no"), "permits"),
        (gang_events.ReleaseBinds(job="j", calls={}), "permits"),
        (gang_events.EvictMembers(uids=("a",)), "calls"),
        (gang_events.EmitEvent(uids=("a",), reason="R", text="t"), "calls"),
        (gang_events.ReadSize(job="j"), "calls"),
        (gang_events.Unreserve(kept_for=("a",)), "plan"),
        (events.ReportJudged(node="n", resource="r", problem=""), "announcer"),
        (events.ClockJudged(node="n", ahead_s=0.0), "announcer"),
    ],
)
def test_each_effect_has_one_part(effect: events.Effect, part: str) -> None:
    heard: list[str] = []
    Router(
        permits=lambda _: heard.append("permits"),
        job_calls=lambda _: heard.append("calls"),
        waker=lambda _: heard.append("waker"),
        announcer=lambda _: heard.append("announcer"),
        owners={Owner.PLAN: lambda _: heard.append("plan")},
    ).carry_out(effect)

    assert heard == [part]
