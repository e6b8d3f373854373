"""A pod that waits for chips gets them when they are released, and not much later."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.world import RESOURCE, World, running

PODS = "/api/v1/namespaces/default/pods"
#: The scheduler's back-off after two refusals, with room for a busy machine; left
#: alone it would try again after five minutes.
PLACED_WITHIN_S = 120.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="w-") as place:
        async with running(["node-1"], below=Path(place)) as found:
            yield found


def whole_node(name: str) -> dict[str, Any]:
    limits = {"limits": {RESOURCE: "8"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": limits}]},
    }


async def phase(world: World, name: str, wanted: str) -> None:
    async with asyncio.timeout(PLACED_WITHIN_S):
        while True:
            pod = await world.api.get(f"{PODS}/{name}")
            if pod["status"]["phase"] == wanted:
                return
            await asyncio.sleep(0.02)


async def test_a_pod_that_waits_for_a_whole_node_gets_it_when_the_last_pod_has_gone(
    world: World,
) -> None:
    # the chips are released later than the scheduler sees the pod go
    world.kubelets["node-1"].switches.stop_s = 1.0
    await world.api.create(PODS, whole_node("first"))
    await phase(world, "first", "Running")
    await world.api.create(PODS, whole_node("second"))
    async with asyncio.timeout(PLACED_WITHIN_S):
        while not [
            event
            for event in await world.api.items("/api/v1/namespaces/default/events")
            if event["reason"] == "FailedScheduling"
        ]:
            await asyncio.sleep(0.02)

    await world.api.delete(f"{PODS}/first")

    await phase(world, "second", "Running")
