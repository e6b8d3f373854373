"""Jobs of several pods through Volcano's sessions."""

import pytest

from extender.cache import events
from extender.gang.job_plan import Phase
from extender.gang.size import Size
from scheduler_core.wire.annotations import ALLOCATED_ON
from tests.extender.volcanos import VolcanoWorld, volcano
from tests.support.caches import cluster, free
from tests.support.watched import (
    ALL,
    JOB_PATH,
    RESOURCE,
    member,
    node,
    pod_update,
    report,
    task,
    tenant,
)

NODES = ("n1", "n2", "n3")


def cluster_of(name: str) -> tuple[events.Change, ...]:
    """What the watches show of one more node."""
    return node(name), report(name)


async def session(
    world: VolcanoWorld, names: list[str], nodes: tuple[str, ...], *, least: int = 0
) -> list[str]:
    """One session as Volcano holds it; the pods that were allocated in the end.

    Args:
        least: How many must be; 0: all.
    """
    refused: set[str] = set()
    done: list[tuple[str, str]] = []
    for name in names:
        asked = [node for node in nodes if node not in refused]
        fitting = await world.fitting(name, asked)
        refused |= set(asked) - set(fitting)
        if not fitting:
            break
        node = await world.best(name, fitting)
        if await world.allocate(name, node):
            break
        done.append((name, node))
    if len(done) >= (least or len(names)):
        return [name for name, _ in done]
    for name, node in reversed(done):
        assert await world.deallocate(name, node) == ""
    return []


async def test_a_job_is_allocated_whole_in_one_session() -> None:
    cache = cluster(*(member(name, size=3) for name in "abc"), nodes=NODES)
    async with volcano(cache) as world:
        assert await world.vote("a", "b", "c") == 0

        assert await session(world, ["a", "b", "c"], NODES) == ["a", "b", "c"]

        nodes = {world.pods.on[f"uid-{name}"][ALLOCATED_ON] for name in "abc"}
        assert nodes == set(NODES)
        gang = cache.gang_of("uid-a")
        assert gang is not None
        assert gang.plan.phase is Phase.BINDING
        for name in "abc":
            where = world.pods.on[f"uid-{name}"][ALLOCATED_ON]
            world.learn(member(name, size=3, node=where))
        assert (gang.plan.phase, gang.plan.places) == (Phase.GATHERING, {})


async def test_a_job_that_does_not_fit_is_refused_and_nothing_is_written() -> None:
    cache = cluster(tenant("x", "n3", ALL), nodes=NODES)
    async with volcano(cache) as world:
        world.learn(*(member(name, size=3) for name in "abc"))

        assert [await world.vote("a", "b", "c") for _ in range(2)] == [-1, -1]
        for _ in range(3):
            assert await session(world, ["a", "b", "c"], ("n1", "n2")) == []

        text = "its job does not fit: 2 of 3 pods fit"
        assert await world.predicate("a", "n1") == text
        assert await world.predicate("a", "n3") == "without 8 free chips"
        assert world.pods.writes == []
        assert world.told == [("g", "a", "2 of 3 pods fit")]


async def test_who_gets_the_place_of_another_pod_changes_places_with_it() -> None:
    async with volcano(cluster(nodes=("n1", "n2"))) as world:
        world.learn(*(member(name) for name in "ab"))
        assert await world.fitting("a", ("n1", "n2")) == ["n1", "n2"]
        own = await world.best("a", ("n1", "n2"))
        other = next(node for node in ("n1", "n2") if node != own)

        assert await world.allocate("a", other) == ""

        assert await world.fitting("b", ("n1", "n2")) == [own]
        assert await world.allocate("b", own) == ""
        assert {name: world.pods.on[f"uid-{name}"][ALLOCATED_ON] for name in "ab"} == {
            "a": other,
            "b": own,
        }


@pytest.mark.parametrize("order", ["abcd", "dcba", "cadb"])
async def test_an_elastic_job_gets_its_least_whatever_pods_volcano_asks_for_first(
    order: str,
) -> None:
    """G4: two of four, and room for two; Volcano's own gang is elastic."""
    async with volcano(cluster(nodes=("n1", "n2"))) as world:
        world.calls.sizes[JOB_PATH] = Size(count=4, least=2)
        world.learn(*(task(at, name=name) for at, name in enumerate("abcd")))
        await world.tick()

        assert await world.vote(*"abcd") == 0
        names = await session(world, [*order], ("n1", "n2"), least=2)

        assert names == [*order[:2]]
        for name in names:
            where = world.pods.on[f"uid-{name}"][ALLOCATED_ON]
            world.learn(task("abcd".index(name), name=name, node=where))
        world.learn(*cluster_of("n3"))
        joined = [
            await session(world, [*order[2:]], ("n1", "n2", "n3"), least=1)
            for _ in range(2)
        ]
        assert joined == [[], [order[2]]]  # in the first the new node is learnt of


async def test_an_elastic_job_below_its_least_is_not_taken_up() -> None:
    async with volcano(cluster(nodes=("n1", "n2"))) as world:
        world.calls.sizes[JOB_PATH] = Size(count=4, least=3)
        world.learn(*(task(at, name=name) for at, name in enumerate("abcd")))
        await world.tick()

        assert await world.vote(*"abcd") == -1
        assert await session(world, [*"abcd"], ("n1", "n2"), least=3) == []


async def test_nodes_that_volcano_does_not_offer_are_not_planned_on_again() -> None:
    offered = ("n2", "n3")
    async with volcano(cluster(*(member(name) for name in "ab"), nodes=NODES)) as world:
        assert await session(world, ["a", "b"], offered) == []
        sessions = 0
        while not await session(world, ["a", "b"], offered):
            world.time.now_s += 1.0
            sessions += 1
            assert sessions < 10
        assert [world.pods.on[f"uid-{n}"][ALLOCATED_ON] for n in "ab"] == ["n2", "n3"]


async def test_what_volcano_keeps_taking_back_is_tried_ever_more_seldom() -> None:
    async with volcano(cluster(*(member(name) for name in "ab"), nodes=NODES)) as world:
        for _ in range(80):
            assert await session(world, ["a", "b"], ("n1",)) == []
            world.time.now_s += 1.0

        assert len(world.pods.writes) < 14
        assert world.pods.on["uid-a"] == {}
        assert all(free(world.cache, node) == tuple(ALL) for node in NODES)


async def test_a_member_before_the_others_waits_for_them() -> None:
    async with volcano(cluster(member("a", size=3), nodes=NODES)) as world:
        assert await world.vote("a") == 0
        assert (
            await world.predicate("a", "n1") == "waits for 2 of the 3 pods of its job"
        )


@pytest.mark.seed("004-08")
async def test_a_job_that_breaks_the_rules_is_not_taken_up() -> None:
    async with volcano(cluster(nodes=NODES)) as world:
        world.learn(*(member(name, count=4) for name in "ab"), pod_update("p", 3))

        assert await world.vote("a", "b") == -1
        assert await world.vote("p") == -1

        assert [name for _, name, _ in world.told] == ["a", "p"]


async def test_a_large_job_has_no_gate_to_be_too_large_for() -> None:
    names = [f"p{number:04}" for number in range(2_001)]
    async with volcano(cluster(nodes=NODES)) as world:
        world.learn(*(member(name, size=2_001) for name in names))

        said = await world.predicate(names[0], "n1")

        assert said == "its job does not fit: 3 of 2001 pods fit"


async def test_a_job_without_pods_yet_is_taken_up_if_its_chips_are_there() -> None:
    def job(count: int | str) -> dict[str, object]:
        spec = {"minResources": {RESOURCE: str(count)}}
        return {"Name": "g", "PgUID": "u", "Tasks": {}, "PodGroup": {"spec": spec}}

    async with volcano(cluster(tenant("x", "n1", (0,)), nodes=("n1", "n2"))) as world:
        assert await world.ask("jobEnqueueable", job=job(15)) == {"status": 0}
        assert await world.ask("jobEnqueueable", job=job(16)) == {"status": -1}
        assert world.told == [("g", "", f"needs 16 of {RESOURCE}, and 15 are free")]
        # as the API server writes 2000
        assert await world.ask("jobEnqueueable", job=job("2k")) == {"status": -1}
