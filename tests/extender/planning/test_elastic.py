"""Elastic jobs, which may run with fewer pods than they have (G4)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cache import events
from extender.cache.cache import Cache
from extender.cache.requests import Resources
from extender.gang.events import Limits
from extender.gang.job_plan import Phase
from extender.gang.size import Size
from extender.planning import plan
from extender.planning.plan_input import TopologySnapshot
from extender.planning.topology import NetworkTopology, Rules
from extender.refusals import Refusal
from scheduler_core.placement.job_rules import Profile
from scheduler_core.products.lookup import Traits
from tests.support.caches import apply, cluster, only_gang, superpods
from tests.support.clock import NOW_S
from tests.support.extender import ServedWorld, World, world
from tests.support.fake_api import Fate
from tests.support.watched import HIGH, JOB_PATH, low, node, report, task, tenant

NODES = ("n1", "n2", "n3", "n4")
PER_POD = TopologySnapshot(profile=Profile.PER_POD)


@asynccontextmanager
async def elastic_job(
    size: Size, *pods: events.PodUpdated, nodes: Sequence[str]
) -> AsyncIterator[ServedWorld]:
    """A world in which a job has this size and these pods, and no more are awaited."""
    async with world(cluster(nodes=nodes), topology=lambda _gang: PER_POD) as w:
        w.calls.sizes[JOB_PATH] = size
        w.add(*pods)
        await w.tick()
        await w.tick(3)
        yield w


def tasks(*numbers: int) -> list[events.PodUpdated]:
    return [task(number) for number in numbers]


async def bind_all(w: ServedWorld, names: Sequence[str]) -> list[str]:
    """Bind these pods where filter sends them; return what the calls are answered."""
    places = [(name, w.filter(name, NODES)) for name in names]
    calls = [w.bind(name, place) for name, (place,) in places]
    return [*await asyncio.gather(*calls)]


async def test_an_elastic_job_runs_with_as_many_pods_as_fit() -> None:
    """Four pods of which two must run, and room for three."""
    size = Size(count=4, least=2)
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES[:3]) as w:
        assert w.filter("w0", NODES) == ["n1"]
        w.learn(node("n4"), report("n4"))
        assert w.why("w3", NODES) == (
            "without 8 free chips",
            "its job starts with fewer pods: this one joins as room comes",
        )

        assert await bind_all(w, ("w0", "w1", "w2")) == ["", "", ""]


async def test_one_event_says_with_how_many_it_runs() -> None:
    size = Size(count=4, least=2)
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES[:2]) as w:
        await bind_all(w, ("w0", "w1"))

        text = (
            "the job runs with 2 of 4 pods, and needs at least 2: the others join as "
            "room comes"
        )
        assert w.calls.told == [("w2", "AscendGangSmaller", text)]
        w.pass_s(700)
        assert w.calls.told == [("w2", "AscendGangSmaller", text)]
        assert w.is_(Phase.GATHERING)


async def test_a_pod_without_room_hears_with_how_many_its_job_runs() -> None:
    size = Size(count=3, least=2)
    async with elastic_job(size, *tasks(0, 1, 2), nodes=NODES[:2]) as w:
        await bind_all(w, ("w0", "w1"))
        small = replace(node("n3"), allocatable_resources=Resources(1, 1, 1))
        w.learn(small, report("n3"))

        assert w.why("w2", ("n1", "n3")) == (
            "its job runs with 2 of 3 pods: no room for more",
            "without 8 free chips",
        )


def refused_plans(w: World) -> float:
    (metric,) = w.metrics.plans.labels("unschedulable").collect()
    return next(s.value for s in metric.samples if s.name.endswith("_total"))


async def test_a_job_that_runs_is_planned_again_only_after_a_change() -> None:
    size = Size(count=4, least=2)
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES[:2]) as w:
        await bind_all(w, ("w0", "w1"))
        for _ in range(5):
            assert w.filter("w2", NODES[:2]) == w.filter("w3", NODES[:2]) == []
        assert refused_plans(w) == 1

        w.learn(node("n3"), report("n3"))
        assert w.filter("w3", NODES[:2]) == []
        assert refused_plans(w) == 2
        assert w.filter("w2", NODES[:3]) == ["n3"]


async def test_nobody_is_evicted_for_pods_that_a_job_can_do_without() -> None:
    running = low("x", "n3", range(8))
    w = World(cluster(running, nodes=NODES[:3]), preempts=True)
    w.calls.sizes[JOB_PATH] = Size(count=3, least=2)
    bound = [
        replace(task(number, node=name), priority=HIGH)
        for number, name in enumerate(NODES[:2])
    ]
    w.learn(*bound, task(2, priority=HIGH))
    await w.tick()

    assert w.filter("w2", NODES[:3]) == []
    await w.tick()

    assert w.calls.rehearsed == []
    w.learn(events.SizeRead(job=only_gang(w.cache).job, size=Size(count=3, least=3)))
    assert w.filter("w2", NODES[:3]) == []
    await w.tick()
    assert w.calls.rehearsed == ["x"]
    await w.stop()


async def test_the_others_join_as_room_comes_and_wait_for_nobody() -> None:
    size = Size(count=4, least=2)
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES[:2]) as w:
        await bind_all(w, ("w0", "w1"))
        w.learn(node("n3"), report("n3"))

        assert await bind_all(w, ("w2",)) == [""]
        w.learn(node("n4"), report("n4"))
        assert await bind_all(w, ("w3",)) == [""]

        assert len(w.calls.told) == 1


async def test_too_few_hold_nothing_and_are_counted_without_the_others() -> None:
    size = Size(count=4, least=3)
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES[:2]) as w:
        assert w.why("w0", NODES[:2]) == ("its job does not fit: 2 of 3 pods fit",)
        found = w.explain("w0")
        assert found["job_pods"] == "4 of 4 (at least 3) pods exist, 0 have a node"
        assert found["why"] == "its job does not fit: 2 of 3 pods fit"


async def test_each_role_gets_its_least_first() -> None:
    """Three nodes: the head and two of four workers, not four pods by rank."""
    size = Size(count=6, least=3, roles=(("head", 1), ("w", 2)))
    pods = [*tasks(0, 1, 2, 3), task(0, role="head"), task(1, role="head")]
    async with elastic_job(size, *pods, nodes=NODES[:3]) as w:
        w.filter("w0", NODES)

        assert only_gang(w.cache).plan.places.keys() == {
            "uid-head0",
            "uid-w0",
            "uid-w1",
        }


async def test_a_role_without_its_least_has_the_job_wait() -> None:
    size = Size(count=5, least=3, roles=(("head", 1), ("w", 2)))
    async with elastic_job(size, *tasks(0, 1, 2, 3), nodes=NODES) as w:
        assert w.why("w0") == ("waits for 1 of the at least 3 pods of its job",)


async def test_nothing_is_set_aside_for_pods_that_a_job_can_do_without() -> None:
    size = Size(count=3, least=2)
    async with elastic_job(size, *tasks(0, 1, 2), nodes=NODES[:2]) as w:
        await bind_all(w, ("w0", "w1"))
        w.learn(node("n3"), report("n3"), tenant("x", "n3", (0,)))
        for _ in range(3):
            w.pass_s(310)
            w.learn(*(report(name, update_time=w.time.now_s) for name in NODES[:3]))
            assert w.filter("w2", NODES[:3]) == []

        assert w.cache.node_reservation(w.cache.pods["uid-w2"].shape.resource) is None


async def test_a_bind_that_fails_leaves_the_others_of_the_plan_bound() -> None:
    size = Size(count=3, least=2)
    async with elastic_job(size, *tasks(0, 1, 2), nodes=NODES[:2]) as w:
        w.api.fates.append(Fate.FORBIDDEN)
        answers = await bind_all(w, ("w0", "w1"))
        assert sorted(map(bool, answers)) == [False, True]

        left = "w0" if answers[0] else "w1"
        assert await bind_all(w, (left,)) == [""]


@pytest.mark.parametrize(
    ("nodes", "pods", "planned"),
    [
        (("n1", "n2", "n3", "n4", "n5"), 6, 4),
        (("n1", "n2", "n3"), 6, 2),
        (("n1", "n2", "n3", "n4", "n5", "n6"), 5, 4),
        (("n1",), 4, 0),
    ],
)
def test_a_job_of_logical_superpods_gets_whole_ones(
    nodes: tuple[str, ...], pods: int, planned: int
) -> None:
    cache = superpods(**dict.fromkeys(nodes, 0))
    traits = Traits(annotations={"sp-block": "32"})
    for number in range(pods):
        apply(cache, task(number, count=16, traits=traits))
    gang = only_gang(cache)
    size = Size(count=pods, least=1)
    apply(cache, events.SizeRead(job=gang.job, size=size))
    topology = NetworkTopology(cache, Rules()).snapshot(gang)

    outcome = plan.plan(cache, gang, nodes, 0, topology)

    names = [] if isinstance(outcome, Refusal) else [r.kept_for for r in outcome]
    assert names == [f"uid-w{number}" for number in range(planned)]


#: chips of a pod, and its role
pod_values = st.tuples(st.sampled_from((1, 2, 4, 8)), st.sampled_from("vw"))


@st.composite
def elastic_sizes(draw: st.DrawFn, pods: Sequence[tuple[int, str]]) -> Size:
    """A size that these pods are enough for."""
    counts = Counter(role for _, role in pods)
    roles = tuple(
        (role, draw(st.integers(0, counts[role])))
        for role in draw(st.sets(st.sampled_from("vw")))
    )
    least = draw(st.integers(1, len(pods)))
    return Size(count=len(pods), least=least, roles=roles)


def cache_of(pods: dict[str, tuple[int, str]], busy: Sequence[int]) -> Cache:
    """Nodes with so many chips in use each, and these pods."""
    names = NODES[: len(busy)]
    cache = cluster(nodes=names)
    for name, count in zip(names, busy, strict=True):
        if count:
            apply(cache, tenant(f"on-{name}", name, range(count)))
    for name, (count, role) in pods.items():
        apply(cache, task(int(name[1:]), role=role, name=name, count=count))
    return cache


def placed_by(cache: Cache, size: Size) -> set[str]:
    gang = only_gang(cache)
    apply(cache, events.SizeRead(job=gang.job, size=size))
    outcome = plan.plan(cache, gang, NODES, 0, PER_POD)
    return set() if isinstance(outcome, Refusal) else {str(r.kept_for) for r in outcome}


@pytest.mark.property
@given(st.data())
def test_the_plan_has_the_most_pods_that_fit_after_those_that_are_needed(
    data: st.DataObject,
) -> None:
    """Against a search that plans each number of pods as a job of its own."""
    values = data.draw(st.lists(pod_values, min_size=1, max_size=5))
    pods = {f"p{number}": value for number, value in enumerate(values)}
    size = data.draw(elastic_sizes(values))
    busy = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=2))
    by_rank = sorted(pods, key=lambda name: (pods[name][1], name))
    first: list[str] = []
    for role, least in size.roles:
        first += [name for name in by_rank if pods[name][1] == role][:least]
    first.sort(key=by_rank.index)
    order = [*first, *(name for name in by_rank if name not in first)]

    expected: set[str] = set()
    for count in range(max(size.least, len(first)), len(order) + 1):
        some = {name: pods[name] for name in order[:count]}
        found = placed_by(cache_of(some, busy), Size(count=count, least=count))
        expected = found or expected

    assert placed_by(cache_of(pods, busy), size) == expected


def test_of_many_pods_the_number_is_found_by_halves() -> None:
    nodes = [f"m{number}" for number in range(30)]
    cache = cluster(nodes=nodes)
    for number in range(100):
        apply(cache, task(number, count=8, name=f"w{number:02}"), now_s=NOW_S)
    gang = only_gang(cache)
    apply(cache, events.SizeRead(job=gang.job, size=Size(count=100, least=2)))

    outcome = plan.plan(cache, gang, nodes, 0)

    assert not isinstance(outcome, Refusal)
    assert [r.kept_for for r in outcome] == [
        f"uid-w{number:02}" for number in range(30)
    ]


def test_a_plan_has_no_more_pods_than_its_binds_may_be() -> None:
    cache = cluster(*tasks(0, 1, 2, 3), nodes=NODES)
    gang = only_gang(cache)
    gang.size = Size(count=4, least=2)

    made = plan.plan(cache, gang, NODES, 0, PER_POD, most=3)

    assert not isinstance(made, Refusal)
    assert [each.kept_for for each in made] == ["uid-w0", "uid-w1", "uid-w2"]


async def test_a_job_larger_than_the_gate_takes_starts_with_fewer_pods() -> None:
    limits = Limits(permit_s=0.02)  # 2 pods
    cache = cluster(nodes=NODES, limits=limits)
    async with world(cache, topology=lambda _gang: PER_POD) as w:
        w.calls.sizes[JOB_PATH] = Size(count=4, least=2)
        w.add(*tasks(0, 1, 2, 3))
        await w.tick()
        await w.tick(3)
        assert len(w.filter("w0", NODES)) == 1
        assert only_gang(w.cache).plan.places.keys() == {"uid-w0", "uid-w1"}

        assert await bind_all(w, ("w0", "w1")) == ["", ""]
        for name in ("w0", "w1"):
            w.show(name)
        assert await bind_all(w, ("w2", "w3")) == ["", ""]


async def test_a_job_that_needs_more_than_the_gate_takes_is_refused() -> None:
    limits = Limits(permit_s=0.02)  # 2 pods
    cache = cluster(nodes=NODES, limits=limits)
    async with world(cache, topology=lambda _gang: PER_POD) as w:
        w.calls.sizes[JOB_PATH] = Size(count=4, least=3)
        w.add(*tasks(0, 1, 2, 3))
        await w.tick()
        await w.tick(3)

        text = (
            "its job needs 3 pods at once, more than the 2 that can be bound together"
        )
        assert w.why("w0", NODES) == (text,)
