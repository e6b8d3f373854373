"""Jobs of several pods, end to end: a scheduling loop calls the extender as a program.

The loop sends filter, prioritize and bind as kube-scheduler does, one pod after the
other and binds beside it; what it knows of nodes, the extender is not told.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox.scheduler import ExtenderSettings, SchedulingLoop
from tests.extender.test_app import World, beside_an_api_server
from tests.support.objects import PODS, pod
from tests.support.until import until
from tests.support.watched import RESOURCE, claim


@asynccontextmanager
async def scheduled(tmp_path: Path, *arguments: str) -> AsyncIterator[World]:
    """An extender and a scheduler that calls it."""
    async with (
        beside_an_api_server(tmp_path, *arguments) as world,
        scheduling(world.server.url, str(world.extender._base_url)),
    ):
        yield world


@asynccontextmanager
async def scheduling(api_url: str, extender_url: str) -> AsyncIterator[None]:
    """A scheduler that calls an extender."""
    loop = SchedulingLoop(
        api_url,
        "user:system:kube-scheduler",
        extender=ExtenderSettings(url=extender_url, http_timeout_s=30),
        backoff_s=0.05,
    )
    await loop.start()
    try:
        yield
    finally:
        await loop.stop()


async def add_member(
    world: World, name: str, *, size: int, count: int = 8, job: str = "train"
) -> None:
    await world.api.create(PODS, member(name, size=size, count=count, job=job))


def member(name: str, *, size: int, count: int, job: str) -> dict[str, Any]:
    marks = {"ascend-affinity/job": job, "ascend-affinity/job-size": str(size)}
    return pod(name, count, meta={"annotations": marks})


async def nodes_of(world: World) -> dict[str, str]:
    """{pod: node}, of pods that have one."""
    pods = await world.api.items(PODS)
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["spec"].get("nodeName")
    }


async def until_bound(world: World, count: int) -> None:
    """Wait until so many pods have a node."""
    await until(lambda: nodes_of(world), lambda nodes: len(nodes) == count)


async def test_a_job_of_eight_pods_is_bound_on_four_nodes(tmp_path: Path) -> None:
    async with scheduled(tmp_path, "--job-rules", "per-pod") as world:
        for number in range(1, 5):
            await world.add_node(f"n{number}")
        for number in range(7):
            await add_member(world, f"p{number}", size=8, count=4)
        text = "waits for 1 of the 8 pods of its job"
        await until(
            world.events, lambda found: any(text in said for _, _, said in found)
        )
        assert await nodes_of(world) == {}

        await add_member(world, "p7", size=8, count=4)
        await until_bound(world, 8)

        pods = await world.api.items(PODS)
        given = sorted(
            (pod["spec"]["nodeName"], pod["metadata"]["annotations"][RESOURCE])
            for pod in pods
        )
        rings = [claim(chips)[RESOURCE] for chips in (range(4), range(4, 8))]
        assert given == [
            (f"n{number}", chips) for number in range(1, 5) for chips in rings
        ]


async def test_while_the_scheduler_finds_no_node_for_one_pod_none_is_planned(
    tmp_path: Path,
) -> None:
    async with scheduled(tmp_path, "--permit-s", "1") as world:
        for number in range(1, 4):
            await world.add_node(f"n{number}")
        await add_member(world, "a", size=2)
        picky = member("b", size=2, count=8, job="train")
        picky["spec"]["nodeSelector"] = {"disk": "ssd"}
        await world.api.create(PODS, picky)

        text = "its job waits until the scheduler finds nodes for b as well"
        await until(
            world.events, lambda found: any(text in said for _, _, said in found)
        )

        assert await nodes_of(world) == {}
        await add_member(world, "c", size=2, job="other")
        await add_member(world, "d", size=2, job="other")
        await until_bound(world, 2)  # nothing was kept for the first
        assert set(await nodes_of(world)) == {"c", "d"}
