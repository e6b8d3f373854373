"""What can be seen of decisions, of permits, and of what lies in small pieces."""

import asyncio

from prometheus_client import CollectorRegistry

from extender.gang.events import Caller
from extender.metrics import Metrics
from scheduler_core.products.table import ATLAS_800_TRAINING
from tests.support.caches import cluster, reservations
from tests.support.extender import World, sample, world
from tests.support.fake_api import Fate
from tests.support.watched import member, tenant


def test_a_products_free_chips_and_how_broken_they_are() -> None:
    registry = CollectorRegistry()
    cache = cluster(tenant("a", "n1", (0, 1, 2)), nodes=("n1", "n2"))

    Metrics(registry).watch_cache(cache)

    shown = {
        name: sample(registry, name, product=ATLAS_800_TRAINING.key)
        for name in ("nodes", "healthy_chips", "free_chips", "fragmentation")
    }
    # a ring with one free chip could serve neither two nor four; the node is not whole
    assert shown == {
        "nodes": 2,
        "healthy_chips": 16,
        "free_chips": 13,
        "fragmentation": 3,
    }


def test_a_later_term_shows_its_own_sizes() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch("settings_unusable", lambda: True)

    metrics.watch_cache(cluster(nodes=("n1", "n2")))
    metrics.watch_cache(cluster(nodes=("n1",)))
    metrics.watch("settings_unusable", lambda: False)

    assert sample(registry, "cached_nodes") == 1
    assert sample(registry, "settings_unusable") == 0


async def test_what_the_api_server_does_not_do_is_counted_by_reason() -> None:
    registry = CollectorRegistry()
    async with world(cluster(), metrics=Metrics(registry)) as w:
        fates = {"a": Fate.FORBIDDEN, "b": Fate.BROKEN, "c": Fate.DONE}
        for name, fate in fates.items():
            w.add(name, fates=[fate])
            await w.bind(name)
        w.add("d")
        del w.api.pods["default", "d"]
        await w.bind("d")

    failed = {
        reason: sample(registry, "binds_failed_total", reason=reason)
        for reason in ("refused", "unclear", "gone")
    }
    assert failed == {"refused": 1, "unclear": 1, "gone": 1}
    assert sample(registry, "pods_bound_total") == 1


async def test_plans_and_waits_for_a_permit_are_counted_by_how_they_end() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    pair = [member("a"), member("b")]
    cache = cluster(*pair, nodes=("n1", "n2"))
    w = World(cache, metrics=metrics)
    planner = w.planner

    metrics.watch_cache(cache)

    for seen in pair:
        assert (
            planner.filter_nodes(seen.pod, ("n1",)) is not None
        )  # room for one of two
    assert _jobs(registry) == {"gathering": 1, "reserved": 0, "binding": 0}
    filter_result = planner.filter_nodes(pair[0].pod, ("n1", "n2"))
    assert filter_result is not None
    assert _jobs(registry) == {"gathering": 0, "reserved": 1, "binding": 0}
    calls = [
        Caller(uid=uid, node=reservation.node, is_there=lambda: True)
        for uid, reservation in reservations(cache).items()
    ]
    assert await asyncio.gather(*map(w.permits.wait, calls)) == [None, None]
    assert _jobs(registry) == {"gathering": 0, "reserved": 0, "binding": 1}

    made = {
        result: sample(registry, "plans_total", result=result)
        for result in ("made", "unschedulable")
    }
    waits = sample(registry, "permit_wait_duration_seconds_count", result="permitted")
    assert (made, waits) == ({"made": 1, "unschedulable": 2}, 2)


def _jobs(registry: CollectorRegistry) -> dict[str, float | None]:
    """{phase: jobs in it}, with the label values that dashboards use."""
    return {
        phase: sample(registry, "jobs", phase=phase)
        for phase in ("gathering", "reserved", "binding")
    }
