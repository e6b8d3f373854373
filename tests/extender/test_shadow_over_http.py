"""Shadow mode, end to end: another scheduler binds, and the extender looks on."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.extender.test_app import World, beside_an_api_server
from tests.support.objects import PODS, binding
from tests.support.until import until
from tests.support.watched import claim

WRITING = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with beside_an_api_server(tmp_path, "--shadow=true") as found:
        yield found


async def bind_as_another(world: World, name: str, node: str, *chips: int) -> None:
    """Mark the pod and bind it, as a scheduler with a plugin of its own does."""
    marks = {"metadata": {"annotations": claim(chips)}}
    await world.api.patch(f"{PODS}/{name}", marks)
    await world.api.create(f"{PODS}/{name}/binding", binding(name, node))


async def report(world: World) -> dict[str, Any]:
    _, text = await world.get("/v1/shadow")
    found: dict[str, Any] = json.loads(text)
    return found


async def test_what_another_scheduler_decides_is_compared_and_told(
    world: World,
) -> None:
    await world.add_node("n1")
    await world.add_node("n2")
    decided = (("a", "n1", (0,)), ("b", "n2", (0,)), ("c", "n1", (1, 4)))
    for number, (name, node, chips) in enumerate(decided, start=1):
        await world.add_pod(name, len(chips))
        await known(world, name)
        await bind_as_another(world, name, node, *chips)
        await seen(world, number)

    found = await report(world)
    assert found["different"] == 2
    assert [(each["name"], each["rule"]) for each in found["latest"]] == [
        ("default/c", "chips-apart"),
        ("default/b", "node-worse"),
    ]
    _, metrics = await world.get("/metrics")
    for rule in ("agrees", "node-worse", "chips-apart"):
        assert (
            f'ascend_extender_shadow_comparisons_total{{rule="{rule}"}} 1.0' in metrics
        )


async def test_a_shadow_writes_nothing_and_answers_no_scheduler(world: World) -> None:
    await world.add_node("n1")
    await world.add_pod("a", 1)
    await known(world, "a")
    await bind_as_another(world, "a", "n1", 0)
    await seen(world, 1)

    for verb in ("filter", "prioritize", "preempt", "bind", "predicate"):
        async with world.extender.post(f"/{verb}", json={}) as answer:
            assert answer.status == 404
    written = [
        call
        for call in world.server.calls
        if call.user == "ascend-extender" and call.verb in WRITING
    ]
    assert written == []


async def known(world: World, name: str) -> None:
    """Wait until the extender knows a pod."""
    path = f"/v1/explain/default/{name}"
    await until(lambda: world.get(path), lambda found: found[0] == 200)


async def seen(world: World, number: int) -> None:
    """Wait until the extender has seen so many decisions."""
    await until(lambda: report(world), lambda found: found["decisions"] == number)
