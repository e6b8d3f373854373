"""A watch on an API server that has trouble: what the one saw, and the other has.

Time is simulated and connections are pipes, so an hour of trouble takes no time and
comes out the same each time.
"""

import asyncio
import json
import random  # noqa: TID251  # seeded: the same trouble each time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from kube.client import Client
from kube.credentials import Credentials
from kube.objects import Pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from sandbox.apiserver import paths, requests
from sandbox.apiserver.outages import Troubles
from sandbox.apiserver.requests import Request
from sandbox.apiserver.resources import Resource
from sandbox.apiserver.routes import Call, Routes
from sandbox.apiserver.store import Store
from sandbox.apiserver.watches import Hub
from tests.kube.pipes import Pipes
from tests.support.objects import pod
from tests.support.tasks import in_background
from tests.support.until import until

PODS = "/api/v1/namespaces/default/pods"
CHURN_S = 0.7


@dataclass(slots=True)
class Mirror:
    """What a consumer of changes believes; it complains of what comes twice."""

    #: {uid: resourceVersion}
    pods: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    synced_count: int = 0

    def take(self, change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                uid, version = obj.metadata.uid, int(obj.metadata.resource_version)
                if self.pods.get(uid, 0) >= version:
                    self.wrong.append(f"{obj.metadata.name} {version} came again")
                self.pods[uid] = version
            case Deleted(obj):
                if self.pods.pop(obj.metadata.uid, None) is None:
                    self.wrong.append(f"{obj.metadata.name} was deleted, but unknown")
            case Synced():
                self.synced_count += 1


class Bed:
    """Server, trouble, client and mirror of one test."""

    def __init__(self) -> None:
        self._made = 0
        self._names: list[str] = []
        self.store = Store(now_s=lambda: 1.8e9, new_uid=self._new_uid)
        self.hub = Hub(self.store.log)
        self.troubles = Troubles(lambda: self.store.log.revision)
        self.mirror = Mirror()
        #: (loop time, verb) of each request that reached the server
        self.asked: list[tuple[float, str]] = []
        #: what it was asked for, and how often
        self.calls: Counter[Call] = Counter()
        self.pipes: Pipes
        self.watch: ListWatch[Pod]

    def _new_uid(self) -> str:
        self._made += 1
        return f"uid-{self._made}"

    def at_server(self) -> dict[str, int]:
        """Return what is true: {uid: resourceVersion}."""
        pods: Resource = _target("").resource
        metas = [e.document["metadata"] for e in self.store.entries(pods).values()]
        return {meta["uid"]: int(meta["resourceVersion"]) for meta in metas}

    def count(self, verb: str, since_s: float = 0.0) -> int:
        return sum(1 for at, what in self.asked if what == verb and at >= since_s)

    def write(self, method: str, name: str, body: dict[str, Any]) -> None:
        request = Request(
            method=method,
            target=_target("" if method == "POST" else name),
            query={"gracePeriodSeconds": "0"} if method == "DELETE" else {},
            media_type="application/merge-patch+json" if method == "PATCH" else "",
            body=json.dumps(body).encode() if body else b"",
        )
        answer = requests.carry_out(self.store, request)
        assert answer.code < 300, answer.raw
        self.hub.publish()

    def change(self, chance: random.Random) -> None:
        """Make, change or delete one pod."""
        verb = chance.choice(("make", "make", "change", "change", "delete"))
        if verb == "make" or not self._names:
            name = f"p{self._made}"
            self.write("POST", name, pod(name))
            self._names.append(name)
            return
        name = chance.choice(self._names)
        if verb == "change":
            mark = {"metadata": {"annotations": {"n": str(self.store.log.revision)}}}
            self.write("PATCH", name, mark)
        else:
            self.write("DELETE", name, {})
            self._names.remove(name)

    async def churn(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  # not a secret
        while True:
            self.change(chance)
            await asyncio.sleep(CHURN_S)


def _target(name: str) -> paths.Target:
    target = paths.parse(f"{PODS}/{name}" if name else PODS)
    assert target is not None
    return target


@asynccontextmanager
async def served(bed: Bed) -> AsyncIterator[Client]:
    """Have a bed's server answer."""

    @web.middleware
    async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
        verb = "watch" if "watch" in request.query else "list"
        if "continue" not in request.query:
            bed.asked.append((asyncio.get_running_loop().time(), verb))
        return await handler(request)

    routes = Routes(bed.store, bed.hub, 60.0)
    bed.calls = routes.calls
    runner = web.AppRunner(
        routes.application((noted, bed.troubles.middleware())),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    assert runner.server is not None
    bed.pipes = Pipes(runner.server)
    try:
        async with Client(
            Credentials("http://bed"), connector=lambda: bed.pipes
        ) as client:
            yield client
    finally:
        await runner.cleanup()


@asynccontextmanager
async def burning(seed: int = 1, *, first_s: float = 0.0) -> AsyncIterator[Bed]:
    """Have a server whose pods change all the time, and somebody who follows them.

    Args:
        first_s: Seconds of peace before the test goes on.
    """
    bed = Bed()
    async with served(bed) as client:
        chance = random.Random(seed)  # noqa: S311  # jitter, not a secret
        bed.watch = ListWatch(client, PODS, Pod, page_size=7, rng=chance)
        async with (
            in_background(bed.churn(seed)),
            in_background(bed.watch.run(bed.mirror.take)),
        ):
            await asyncio.sleep(first_s)
            yield bed


async def settled(bed: Bed, within_s: float = 120.0) -> None:
    """Wait until mirror and cache are what the server has."""
    await until(
        lambda: bed.at_server() == bed.mirror.pods, within_s=within_s, every_s=0.05
    )
    cached = {
        pod.metadata.uid: int(pod.metadata.resource_version)
        for pod in bed.watch.objects()
    }
    assert cached == bed.mirror.pods
    assert bed.mirror.wrong == []
