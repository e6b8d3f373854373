"""What is known wrongly is found, mended and counted; what is only new is not."""

import asyncio
import random  # noqa: TID251  # seeded: the same churn each time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from extender.apiserver.informers import Informers
from extender.apiserver.resync import Resync
from extender.cache import events
from extender.metrics import Metrics
from sandbox.apiserver.outages import Trouble, What
from tests.extender.fed import World
from tests.kube.fire import Bed, served
from tests.support.caches import (
    apply,
    empty,
    free,
    known_uid,
    recompute,
    state_of,
)
from tests.support.objects import PODS
from tests.support.until import until
from tests.support.watched import RESOURCE

pytestmark = pytest.mark.looptime

LOST = Trouble(what=What.LOST)


@asynccontextmanager
async def fed(seed: int = 1, every_s: float = 0.0) -> AsyncIterator[World]:
    bed, cache, registry = Bed(), empty(), CollectorRegistry()
    metrics = Metrics(registry)

    def learn(change: events.Change) -> None:
        apply(cache, change)

    async with served(bed) as client, asyncio.TaskGroup() as group:
        informers = Informers(
            client, learn=learn, settings=lambda _: None, synced=lambda: None
        )
        resync = Resync(
            informers,
            cache,
            metrics,
            learn=learn,
            every_s=every_s,
        )
        world = World(
            bed=bed,
            informers=informers,
            cache=cache,
            resync=resync,
            registry=registry,
            chance=random.Random(seed),  # noqa: S311  # not a secret
        )
        world.add_nodes()
        tasks = [group.create_task(informers.run()), group.create_task(resync.run())]
        try:
            await until(
                lambda: bed.count("watch") >= len(informers.watches()), every_s=0.1
            )
            yield world
        finally:
            for task in tasks:
                task.cancel()


@pytest.mark.parametrize("seed", range(1))
async def test_while_all_is_well_nothing_is_found(seed: int) -> None:
    async with fed(seed, every_s=20) as world:
        for _ in range(100):
            world.change()
            await asyncio.sleep(world.chance.choice((0.1, 1, 10)))
        assert world.cache.pods
        assert world.all_repaired() == 0
        assert world.resynced("done") >= 5


async def test_what_never_came_is_found_once_and_mended() -> None:
    async with fed() as world:
        bound, deleted = world.make(), world.make()
        world.bind(deleted, "n2")
        await asyncio.sleep(1)
        end = world.bed.troubles.begin(LOST)
        world.bind(bound, "n1")
        world.write("DELETE", f"{PODS}/{deleted}", {})
        await asyncio.sleep(70)  # bookmarks have come: the watches know of no loss
        end()
        assert len(free(world.cache, "n1")) == 8
        assert len(free(world.cache, "n2")) == 6

        await world.resync.run_once()
        await asyncio.sleep(2)

        assert len(free(world.cache, "n1")) == 6
        assert len(world.cache.pods) == 1
        assert {name: world.repaired(name) for name in world.informers.watches()} == {
            "nodes": 0,
            "pods": 2,
            "reports": 0,
            "switches": 0,
            "settings": 0,
        }
        await world.resync.run_once()
        assert world.all_repaired() == 2


async def test_what_the_cache_has_not_followed_is_mended() -> None:
    async with fed() as world:
        name = world.make()
        world.bind(name, "n1")
        await asyncio.sleep(1)
        cache = world.cache
        uid = known_uid(cache, name)
        # what an error of ours might do to it
        first, second = (state_of(cache, name, RESOURCE) for name in ("n1", "n2"))
        first.tenants.clear()
        recompute(cache, first)
        second.allocatable = 0
        cache._state.facts.switch_texts = ("old", "old")
        apply(cache, events.NodeUpdated(name="n2"))
        assert uid in cache.requests.uids()
        asked = cache.requests.ask(uid)
        apply(cache, events.OtherPodUpdated(uid="ghost", node="n1", ask=asked))

        await world.resync.run_once()

        assert {name: world.repaired(name) for name in world.informers.watches()} == {
            "nodes": 1,
            "pods": 2,
            "reports": 0,
            "switches": 1,
            "settings": 0,
        }
        assert len(free(cache, "n1")) == 6
        assert len(free(cache, "n2")) == 8
        assert "ghost" not in cache.requests.uids()
        await world.resync.run_once()
        assert world.all_repaired() == 4


@pytest.mark.parametrize("chips", [0, 2])
async def test_a_pod_may_be_taken_out_of_its_job_and_put_into_another(
    chips: int,
) -> None:
    async with fed() as world:
        path = f"{PODS}/{world.make(chips)}"
        jobs = {}
        for group in ("g", "h", None):
            labels = {"scheduling.k8s.io/group-name": group}
            world.write("PATCH", path, {"metadata": {"labels": labels}})
            await asyncio.sleep(1)
            jobs[group] = list(world.cache.gangs)

        await world.resync.run_once()

        kind = "PodGroup of Volcano/default"
        assert jobs == {"g": [f"{kind}/g"], "h": [f"{kind}/h"], None: []}
        assert world.cache._state.gangs.job_of == {}
        assert world.all_repaired() == 0


async def test_a_pod_that_has_come_back_from_the_dead_lives() -> None:
    # as after etcd was restored from a backup: the cache takes no such news
    async with fed() as world:
        name = world.make()
        world.bind(name, "n1")
        await asyncio.sleep(1)
        uid = known_uid(world.cache, name)
        ended = replace(world.cache.pods[uid], phase="Succeeded")
        apply(world.cache, events.PodUpdated(pod=ended))
        assert world.cache.pods[uid].terminal

        await world.resync.run_once()

        assert not world.cache.pods[uid].terminal
        assert len(free(world.cache, "n1")) == 6


async def test_where_nothing_can_be_told_nothing_is_done() -> None:
    async with fed() as world:
        refused = Trouble(what=What.REFUSED, status=429, verbs=frozenset({"list"}))
        world.bed.troubles.begin(refused)

        await world.resync.run_once()

        assert world.resynced("done") == 0
        assert world.resynced("inconclusive") == 5
        assert world.all_repaired() == 0
