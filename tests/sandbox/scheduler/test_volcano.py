"""Volcano's session loop: its bodies are the recorded ones, and it churns so, too."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sandbox.apiclient import ApiClient
from sandbox.apiserver import ApiServer
from sandbox.pods import pod_of
from sandbox.scheduler import VolcanoLoop
from sandbox.scheduler.volcanobodies import (
    Status,
    Task,
    job_info,
    node_info,
    task_info,
)

BODIES = Path(__file__).parents[2] / "extender" / "bodies"
RESOURCE = "huawei.com/Ascend910"
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def recorded(name: str) -> Any:
    return json.loads((BODIES / f"volcano-{name}.json").read_text())


def task_of(info: Any, status: Status, node: str = "") -> Task:
    """The task that a recorded one tells of, before it had a node."""
    source = json.loads(json.dumps(info["Pod"]))
    source["spec"].pop("nodeName", None)
    return Task(pod=pod_of(source), job=info["Job"], status=status, node=node)


def test_tasks_are_told_as_volcano_tells_them() -> None:
    pending = recorded("predicate-1")["task"]
    put = recorded("allocate-1")["task"]
    taken = recorded("deallocate")["task"]

    assert task_info(task_of(pending, Status.PENDING)) == pending
    assert task_info(task_of(put, Status.ALLOCATED, "node3")) == put
    back = task_of(taken, Status.PENDING, "node2")
    before = task_of(taken, Status.ALLOCATED, "node2")
    assert task_info(back, before=before) == taken


def test_nodes_are_told_as_volcano_tells_them() -> None:
    found = recorded("predicate-1")["node"]
    told = node_info(found["Node"], [])

    for amount in ("Idle", "Allocatable", "Capacity"):  # of chips only, here
        told[amount] |= {key: found[amount][key] for key in ("MilliCPU", "Memory")}
    assert told == found
    tasks = [task_of(recorded("allocate-1")["task"], Status.BOUND, "node3")]
    assert [*node_info(found["Node"], tasks)["Tasks"]] == ["default/g1-0"]


def test_jobs_are_told_as_volcano_tells_them() -> None:
    found = recorded("jobEnqueueable")["job"]
    tasks = [task_of(each, Status.PENDING) for each in found["Tasks"].values()]

    assert job_info(found["PodGroup"], tasks) == found


@dataclass(slots=True)
class Plugin:
    """An extender that says what it is told to, and notes what it is asked."""

    #: pods that allocateFunc refuses
    refuses: set[str] = field(default_factory=set)
    is_taken_up: bool = True
    asked: Counter[str] = field(default_factory=Counter)

    async def answer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        body = await request.json()
        self.asked[verb] += 1
        answers: dict[str, Any] = {
            "jobEnqueueable": {"status": 0 if self.is_taken_up else -1},
            "predicate": {"status": "", "code": 0},
            "prioritize": {"errorMessage": "", "nodeScore": {"n2": 1.0}},
        }
        name = body.get("task", {}).get("Name")
        said = "no" if verb == "allocateFunc" and name in self.refuses else ""
        return web.json_response(answers.get(verb, {"errorMessage": said}))


@dataclass(slots=True, kw_only=True)
class World:
    api: ApiClient
    plugin: Plugin
    loop: VolcanoLoop

    async def add_gang(self, name: str, *members: str) -> None:
        asked = {RESOURCE: str(8 * len(members))}
        meta = {"name": name, "namespace": "default"}
        spec = {"minMember": len(members), "minResources": asked}
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": meta,
            "spec": spec,
        }
        await self.api.create(GROUPS, group)
        for member in members:
            limits = {RESOURCE: "8"}
            container = {"name": "c", "image": "x", "resources": {"limits": limits}}
            mark = {"scheduling.k8s.io/group-name": name}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**meta, "name": member, "annotations": mark},
                "spec": {"containers": [container], "schedulerName": "volcano"},
            }
            await self.api.create(PODS, pod)

    async def nodes(self) -> dict[str, str]:
        pods = await self.api.items(PODS)
        return {p["metadata"]["name"]: p["spec"].get("nodeName", "") for p in pods}


@asynccontextmanager
async def world(**said: Any) -> AsyncIterator[World]:
    server = ApiServer()
    await server.start()
    plugin = Plugin(**said)
    app = web.Application()
    app.router.add_post("/volcano/{verb}", plugin.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/volcano"
    loop = VolcanoLoop(server.url, "user:volcano", url, period_s=0.02)
    async with ApiClient(server.url, "user:test") as api:
        for name in ("n1", "n2"):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            await api.create("/api/v1/nodes", node)
            has = {RESOURCE: "8", "pods": "110"}
            offered = {"capacity": has, "allocatable": has}
            await api.patch_status(f"/api/v1/nodes/{name}", {"status": offered})
        await loop.start()
        try:
            yield World(api=api, plugin=plugin, loop=loop)
        finally:
            await loop.stop()
    await runner.cleanup()
    await server.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # what changes has no event to wait for
            await asyncio.sleep(0.01)


async def sessions(found: World, count: int) -> None:
    """Wait until so many more sessions have been held from beginning to end."""
    last = found.loop.sessions + count + 1
    await until(lambda: found.loop.sessions >= last)


async def test_a_gang_is_asked_for_in_volcanos_order_and_bound_whole() -> None:
    async with world() as found:
        await found.add_gang("g", "a", "b")
        await until(
            lambda: [c.verb for c in found.loop.calls].count("allocateFunc") > 1
        )
        await sessions(found, 1)

        assert await found.nodes() == {"a": "n2", "b": "n1"}
        assert [(call.verb, call.pod) for call in found.loop.calls][-6:] == [
            *[("predicate", "default/a")] * 2,
            ("prioritize", "default/a"),
            ("allocateFunc", "default/a"),
            ("predicate", "default/b"),
            ("allocateFunc", "default/b"),
        ]
        assert found.loop.calls[0].verb == "jobEnqueueable"
        group = await found.api.get(f"{GROUPS}/g")
        assert group["status"]["phase"] == "Running"


async def test_a_gang_with_room_for_a_part_churns_if_nobody_prevents_it() -> None:
    async with world() as found:
        await found.add_gang("g", "a", "b", "c")
        await until(lambda: found.plugin.asked["deallocateFunc"] >= 6)
        await sessions(found, 1)

        counts = Counter(call.verb for call in found.loop.calls)
        assert counts["allocateFunc"] == counts["deallocateFunc"]
        assert await found.nodes() == {"a": "", "b": "", "c": ""}


async def test_a_job_that_is_not_taken_up_is_asked_for_nothing_else() -> None:
    async with world(is_taken_up=False) as found:
        await found.add_gang("g", "a")
        await until(lambda: found.plugin.asked["jobEnqueueable"] >= 3)

        assert set(found.plugin.asked) == {"jobEnqueueable"}


async def test_a_task_that_is_refused_is_taken_back_with_all_before_it() -> None:
    async with world(refuses={"b"}) as found:
        await found.add_gang("g", "a", "b")
        await until(lambda: found.plugin.asked["deallocateFunc"] >= 2)
        await sessions(found, 1)

        verbs = [(c.verb, c.pod) for c in found.loop.calls if "Func" in c.verb]
        assert verbs[:4] == [
            ("allocateFunc", "default/a"),
            ("allocateFunc", "default/b"),
            ("deallocateFunc", "default/b"),
            ("deallocateFunc", "default/a"),
        ]
        assert await found.nodes() == {"a": "", "b": ""}


@pytest.mark.parametrize("count", [1, 16])
async def test_bodies_grow_with_the_pods_of_a_node(count: int) -> None:
    found = recorded("predicate-1")
    tasks = [task_of(found["task"], Status.BOUND, "node3")] * count

    body = {"task": found["task"], "node": node_info(found["node"]["Node"], tasks)}

    assert len(json.dumps(body)) > 6_000
