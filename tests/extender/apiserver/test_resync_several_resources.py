"""Nodes of two product lines hold what the watches show, and a resync mends them."""

import asyncio

import pytest

from scheduler_core.wire import deviceinfo
from tests.extender.apiserver.test_resync import fed
from tests.extender.fed import REPORTS, World
from tests.support import objects
from tests.support.caches import apply, free, recompute, state_of
from tests.support.objects import PODS
from tests.support.watched import (
    BOTH,
    CARD,
    INFERENCE,
    RESOURCE,
    TRAINING,
    Line,
    asking,
    node,
    texts,
)

pytestmark = pytest.mark.looptime


def make_both(world: World, name: str) -> None:
    """Let a node offer chips of both lines."""
    has = {RESOURCE: "8", CARD: "2", "cpu": "100", "pods": "110"}
    world.write("PATCH", f"/api/v1/nodes/{name}/status", objects.offered(**has))
    listed = {"baseDeviceInfos": node(name, *BOTH).inventory}
    world.write("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": listed}})
    path = f"{REPORTS}/{deviceinfo.configmap_name(name)}"
    world.write("PATCH", path, {"data": texts(*BOTH)})


def run_pod(world: World, name: str, line: Line, ids: tuple[int, ...]) -> None:
    """Have somebody bind a pod that asks for chips of a line."""
    pod = asking(name, line, ids=ids, time=5)
    made = objects.pod(name, len(ids), resource=line.product.resource)
    world.write("POST", PODS, made)
    bound = objects.binding(name, "n1", annotations=dict(pod.annotations))
    world.write("POST", f"{PODS}/{name}/binding", bound)


async def test_nothing_is_found_on_a_node_of_two_lines() -> None:
    async with fed() as world:
        make_both(world, "n1")
        run_pod(world, "a", TRAINING, (0, 1))
        run_pod(world, "b", INFERENCE, (8,))
        await asyncio.sleep(1)

        await world.resync.run_once()

        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)
        assert free(world.cache, "n1", CARD) == (9,)
        assert world.all_repaired() == 0


async def test_what_is_wrong_of_the_second_line_is_mended() -> None:
    async with fed() as world:
        make_both(world, "n1")
        run_pod(world, "b", INFERENCE, (8,))
        await asyncio.sleep(1)
        cards = state_of(world.cache, "n1", CARD)
        cards.tenants.clear()
        recompute(world.cache, cards)
        assert free(world.cache, "n1", CARD) == (8, 9)

        await world.resync.run_once()

        assert free(world.cache, "n1", CARD) == (9,)
        assert (world.repaired("pods"), world.all_repaired()) == (1, 1)

        apply(world.cache, node("n1", TRAINING))
        await world.resync.run_once()

        assert free(world.cache, "n1", CARD) == (9,)
        assert (world.repaired("nodes"), world.all_repaired()) == (1, 2)
