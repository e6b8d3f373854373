"""Volcano, the extender and agents in one cluster: jobs whole, or not at all."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.scheduler import VolcanoLoop
from sandbox.world import RESOURCE, World, running

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
REAL = "huawei.com/AscendReal"
OURS = {RESOURCE, "predicate-time", "distributed-job", "ascend-affinity/allocated-on"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volcano:
    world: World
    loop: VolcanoLoop

    async def add_gang(self, name: str, *members: str, picky: str = "") -> None:
        """A PodGroup and its pods of eight chips; one may want a node that is none."""
        asked = {RESOURCE: str(8 * len(members))}
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": len(members), "minResources": asked},
        }
        await self.world.api.create(GROUPS, group)
        for member in members:
            limits = {RESOURCE: "8"}
            container = {"name": "c", "image": "x", "resources": {"limits": limits}}
            spec: dict[str, Any] = {
                "containers": [container],
                "schedulerName": "volcano",
                "terminationGracePeriodSeconds": 0,
            }
            if member == picky:
                spec["nodeSelector"] = {"disk": "ssd"}
            meta = {
                "name": member,
                "namespace": "default",
                "annotations": {"scheduling.k8s.io/group-name": name},
            }
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            await self.world.api.create(PODS, pod)

    async def delete(self, name: str, *members: str) -> None:
        for member in members:
            await self.world.api.delete(f"{PODS}/{member}", grace_s=0)
        await self.world.api.delete(f"{GROUPS}/{name}")

    async def pods(self) -> dict[str, dict[str, Any]]:
        found = await self.world.api.items(PODS)
        return {pod["metadata"]["name"]: pod for pod in found}

    async def are_served(self, *names: str) -> bool:
        """Whether these pods run and their agents have said what they have."""
        pods = await self.pods()
        return all(
            pods[name]["status"].get("phase") == "Running"
            and REAL in annotations(pods[name])
            for name in names
        )

    def verbs(self, job: str) -> list[str]:
        return [call.verb for call in self.loop.calls if call.job == f"default/{job}"]

    def events(self, reason: str) -> Callable[[], Awaitable[set[str]]]:
        """Names of the objects that were told so."""

        async def found() -> set[str]:
            items = await self.world.api.items("/api/v1/namespaces/default/events")
            return {e["involvedObject"]["name"] for e in items if e["reason"] == reason}

        return found


def annotations(pod: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("annotations") or {}
    return found


@asynccontextmanager
async def volcano(*nodes: str) -> AsyncIterator[Volcano]:
    with tempfile.TemporaryDirectory(prefix="v-") as place:  # tmp_path is too long
        async with running(nodes, below=Path(place)) as world:
            url = f"{world.extender_url}/volcano"
            loop = VolcanoLoop(world.api_url, "user:volcano", url, period_s=0.1)
            await loop.start()
            try:
                yield Volcano(world=world, loop=loop)
            finally:
                await loop.stop()


async def until(is_so: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(60):
        while not await is_so():  # what changes has no event to wait for
            await asyncio.sleep(0.05)


async def test_jobs_are_served_whole_or_not_begun_and_nothing_is_left() -> None:
    async with volcano("n1", "n2") as cluster:
        await cluster.add_gang("first", "a", "b")
        await until(lambda: cluster.are_served("a", "b"))
        pods = await cluster.pods()
        assert sorted(pods[name]["spec"]["nodeName"] for name in "ab") == ["n1", "n2"]
        for name in "ab":
            found = annotations(pods[name])
            assert found[REAL] == found[RESOURCE]
            assert found.keys() >= OURS

        await cluster.add_gang("second", "c", "d")
        is_told = cluster.events("AscendNoRoom")
        await until(is_told)
        held = cluster.loop.sessions + 5
        await until(lambda: _are_held(cluster, held))
        assert set(cluster.verbs("second")) <= {"jobEnqueueable", "predicate"}
        assert OURS & annotations((await cluster.pods())["c"]).keys() == set()
        assert "second" in await is_told()

        await cluster.delete("first", "a", "b")
        await until(lambda: cluster.are_served("c", "d"))

        await cluster.delete("second", "c", "d")
        await cluster.add_gang("picky", "e", "f", picky="f")
        await until(lambda: _is_taken_back(cluster, "picky"))
        held = cluster.loop.sessions + 10
        await until(lambda: _are_held(cluster, held))
        verbs = cluster.verbs("picky")
        assert verbs.count("allocateFunc") <= 5  # not in each of ten sessions
        await until(lambda: _is_bare(cluster, "e"))
        assert "nodeName" not in (await cluster.pods())["e"]["spec"]


async def _are_held(cluster: Volcano, count: int) -> bool:
    return cluster.loop.sessions >= count


async def _is_taken_back(cluster: Volcano, job: str) -> bool:
    return "deallocateFunc" in cluster.verbs(job)


async def _is_bare(cluster: Volcano, name: str) -> bool:
    return not OURS & annotations((await cluster.pods())[name]).keys()
