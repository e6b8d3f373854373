"""A day of an agent in simulated time: what it asks of the API server when idle."""

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent.health.rules import FaultConfig
from agent.monitor.fault_config import FaultConfigWatch
from kube.objects import Pod
from kube.reflector import ListWatch
from tests.agent.reporting import NAMESPACE, drawn, reporting

HOUR_S = 3600.0
BOOKMARK_S = 60.0
CHANGES = 6
#: What a node may cost its API server in an hour in which nothing happens.
REQUESTS = 40


class _Watch:
    """A watch of one collection: its changes, a bookmark each minute, and its end."""

    def __init__(self, api: "_Api", params: dict[str, str]) -> None:
        self._api = api
        self.params = params
        self._loop_s = asyncio.get_running_loop().time
        self._ends_s = self._loop_s() + float(params["timeoutSeconds"])
        self.changes: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(self, idle_s: float) -> bytes:
        left_s = self._ends_s - self._loop_s()
        if left_s <= 0:
            return b""
        try:
            async with asyncio.timeout(min(BOOKMARK_S, left_s)):
                return await self.changes.get()
        except TimeoutError:
            assert idle_s > BOOKMARK_S
            return self._api.event("BOOKMARK", {"metadata": {}})


class _Api:
    """An API server of one node without pods, which counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._version = 1
        self._watches: dict[str, list[_Watch]] = {}
        self._objects: dict[str, dict[str, Any]] = {
            "/api/v1/nodes": {"metadata": {"name": "node-1", "uid": "n"}}
        }

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: dict[str, str] | None = None,
        **_more: object,
    ) -> bytes:
        self.asked[f"{method} {path.split('/')[-2]}"] += 1
        if method == "GET":
            found = self._objects.get(path)
            items = [found] if found and _selects(params or {}, found) else []
            version = {"resourceVersion": str(self._version)}
            return json.dumps({"metadata": version, "items": items}).encode()
        assert method == "PATCH"
        return self._write(path, json.loads(body or b"{}"))

    def _write(self, path: str, wanted: dict[str, Any]) -> bytes:
        self._version += 1
        collection, _, name = path.rpartition("/")
        new = {"metadata": {"name": name, "uid": "c"}}
        found = self._objects.setdefault(collection, new)
        metadata = found["metadata"] | {"resourceVersion": str(self._version)}
        for key, value in wanted.get("metadata", {}).items():
            merged = {**metadata.get(key, {}), **value} if key in _MAPS else value
            metadata[key] = merged
        found["metadata"] = metadata
        found["data"] = found.get("data", {}) | wanted.get("data", {})
        for watch in self._watches.get(collection, []):
            if _selects(watch.params, found):
                watch.changes.put_nowait(self.event("MODIFIED", found))
        return json.dumps(found).encode()

    def event(self, kind: str, obj: dict[str, Any]) -> bytes:
        return json.dumps({"type": kind, "object": obj}).encode() + b"\n"

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: dict[str, str], **_more: object
    ) -> AsyncIterator[_Watch]:
        self.asked[f"WATCH {path.rpartition('/')[2]}"] += 1
        watch = _Watch(self, params)
        open_ones = self._watches.setdefault(path, [])
        open_ones.append(watch)
        try:
            yield watch
        finally:
            open_ones.remove(watch)


_MAPS = ("labels", "annotations")


def _selects(params: dict[str, str], found: dict[str, Any]) -> bool:
    name = params.get("fieldSelector", "").removeprefix("metadata.name=")
    return name in ("", found["metadata"]["name"])


@asynccontextmanager
async def an_agent(api: Any) -> AsyncIterator[Any]:
    """All of an agent that speaks to the API server while no pod comes or goes."""
    pods = ListWatch(api, "/api/v1/pods", Pod)
    configured: list[FaultConfig] = []
    faults = FaultConfigWatch(
        api, namespace=NAMESPACE, apply=configured.append, on_problem=unexpected
    )
    async with reporting(api) as world:
        tasks = {
            asyncio.create_task(pods.run(lambda _change: None)),
            asyncio.create_task(faults.run()),
        }
        yield world
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert configured == []


def unexpected(problem: str) -> None:
    raise AssertionError(problem)


@pytest.mark.looptime
async def test_a_day_costs_few_requests_and_leaves_nothing_behind() -> None:
    """Every second hour nothing happens, in the others something each ten minutes."""
    api, reports = _Api(), (drawn(1), drawn(2))
    idle, busy = 0, 0
    objects: list[int] = []

    async with an_agent(api) as world:
        world.reporter.publish(reports[0])
        await asyncio.sleep(60)
        at_first = api.asked.total()
        for _ in range(12):
            before = api.asked.total()
            await asyncio.sleep(HOUR_S)
            idle += api.asked.total() - before
            for change in range(CHANGES):
                world.reporter.publish(reports[(change + 1) % 2])
                await asyncio.sleep(HOUR_S / CHANGES)
            gc.collect()
            objects.append(len(gc.get_objects()))
        busy = api.asked.total() - at_first - idle

    assert idle <= 12 * REQUESTS, api.asked
    assert busy <= 12 * (REQUESTS + CHANGES), api.asked
    # no list but the first of each kind: nothing is polled
    assert {key: n for key, n in api.asked.items() if key.startswith("GET")} == {
        "GET v1": 2,
        f"GET {NAMESPACE}": 2,
    }
    assert api.asked["PATCH configmaps"] >= 12 * 12
    assert max(objects[6:]) - min(objects[1:6]) < 500, objects
