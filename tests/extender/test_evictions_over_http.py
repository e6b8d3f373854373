"""Making room, end to end: scheduler, extender and API server as programs.

Nobody runs containers here: pods that are evicted stay, ending, until the test plays
their kubelet.
"""

from pathlib import Path
from typing import Any

from sandbox.apiserver.resources import PODS as PODS_RESOURCE
from tests.extender.test_app import World
from tests.extender.test_gangs_over_http import (
    member,
    nodes_of,
    scheduled,
)
from tests.support import objects
from tests.support.objects import PODS
from tests.support.until import equal, until
from tests.support.watched import RESOURCE, claim, served

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


async def add(world: World, name: str, count: int, priority: int = 0) -> None:
    await world.api.create(PODS, asking(name, count, priority))


def asking(name: str, count: int, priority: int) -> dict[str, Any]:
    return objects.pod(name, count, meta={"labels": {"app": name}}, priority=priority)


async def run(world: World, name: str, node: str, *chips: int) -> None:
    """A pod that has its chips, confirmed as by its agent, and is ready."""
    pod = asking(name, len(chips), 0)
    pod["metadata"]["annotations"] = served(chips)
    pod["spec"]["nodeName"] = node
    await world.api.create(PODS, pod)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "conditions": ready}
    await world.api.patch_status(f"{PODS}/{name}", {"status": status})


async def until_placed(world: World, *names: str) -> None:
    """Wait until these pods have nodes."""
    await until(lambda: nodes_of(world), lambda nodes: set(names) <= set(nodes))


def ending(world: World) -> set[str]:
    pods = world.server.store.entries(PODS_RESOURCE).values()
    return {
        entry.document["metadata"]["name"]
        for entry in pods
        if "deletionTimestamp" in entry.document["metadata"]
    }


async def chips_of(world: World, name: str) -> str:
    pod = await world.api.get(f"{PODS}/{name}")
    found: str = pod["metadata"]["annotations"][RESOURCE]
    return found


async def test_a_ring_is_freed_for_a_pod_of_higher_priority(tmp_path: Path) -> None:
    async with scheduled(tmp_path, "--preemption", "evict") as world:
        await world.add_node("n1")
        await run(world, "a", "n1", 0)
        await run(world, "b", "n1", 4)
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "b"}}}
        made = {"metadata": {"name": "keep-b"}, "spec": budget}
        await world.api.create(BUDGETS, made)

        await add(world, "equal", 8)  # waits, and nobody goes for it
        await add(world, "high", 4, priority=1000)
        await until(lambda: ending(world), equal({"a"}))
        await world.until_event("AscendPreempted", "a")
        await world.until_event("AscendPreempting", "high")

        _, text = await world.get("/v1/explain/default/high")
        assert "chips 0,1,2,3 of n1 are kept for it, which default/a must leave" in text
        await add(world, "other", 1)
        await until_placed(world, "other")
        await world.api.delete(f"{PODS}/a", grace_s=0)
        await until_placed(world, "high")
        assert await chips_of(world, "other") == "Ascend910-5"
        assert await chips_of(world, "high") == claim(range(4))[RESOURCE]
        assert set(await nodes_of(world)) == {"b", "high", "other"}


async def test_nobody_goes_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with scheduled(tmp_path) as world:
        await world.add_node("n1")
        await run(world, "a", "n1", 0)
        await run(world, "b", "n1", 4)

        await add(world, "high", 4, priority=1000)
        await world.until_event("FailedScheduling", "high")

        assert ending(world) == set()
        assert set(await nodes_of(world)) == {"a", "b"}


async def test_for_a_job_of_higher_priority_several_rings_are_freed(
    tmp_path: Path,
) -> None:
    settings = ("--preemption", "evict", "--job-rules", "per-pod")
    async with scheduled(tmp_path, *settings) as world:
        for name in ("n1", "n2"):
            await world.add_node(name)
            await run(world, f"{name}-a", name, 0)
            await run(world, f"{name}-b", name, 4)

        for name in ("w0", "w1", "w2"):
            wanting = member(name, size=3, count=4, job="train")
            wanting["spec"]["priority"] = 1000
            await world.api.create(PODS, wanting)
        await until(lambda: len(ending(world)) == 3)
        for name in ending(world):
            await world.api.delete(f"{PODS}/{name}", grace_s=0)

        await until_placed(world, "w0", "w1", "w2")
        assert len(await nodes_of(world)) == 4
