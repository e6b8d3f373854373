"""Volcano's verbs over a small cluster, asked over HTTP as its plugin does."""

import asyncio
import io
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from extender.cache.cache import Cache
from extender.cache.reservations import Owner
from extender.volcano.claims import ClaimWriter
from extender.volcano.podgroup_conditions import PodGroupConditions
from extender.volcano.protocol import Job, Status
from extender.volcano.sessions import Sessions
from extender.volcano.verbs import Parts, VolcanoVerbs
from kube.errors import KubeError
from kube.podgroups import Condition
from scheduler_core.wire.pods import NpuPod
from tests.support.extender import World
from tests.support.servers import asking
from tests.support.watched import gone


@dataclass(slots=True)
class Pods:
    """What stands on pods, as an API server keeps it."""

    #: {uid: annotations}
    on: dict[str, dict[str, str]] = field(default_factory=dict)
    #: uid of each write
    writes: list[str] = field(default_factory=list)
    #: what the next writes come to, after they have been done
    fates: deque[KubeError] = field(default_factory=deque)
    #: writes wait for it
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    async def mark(self, pod: NpuPod, annotations: Mapping[str, str | None]) -> None:
        await self.go_on.wait()
        there = self.on.setdefault(pod.uid, {})
        for key, value in annotations.items():
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value
        self.writes.append(pod.uid)
        if self.fates:
            raise self.fates.popleft()


@dataclass(slots=True)
class PodGroups:
    """PodGroups as an API server keeps them."""

    #: {name: (version, conditions)}
    on: dict[str, tuple[str, list[Condition]]] = field(default_factory=dict)
    #: (name, conditions) of each write that was done
    writes: list[tuple[str, list[Condition]]] = field(default_factory=list)
    #: what the next calls come to, before anything is done
    fates: deque[KubeError] = field(default_factory=deque)

    async def read(self, namespace: str, name: str) -> tuple[str, list[Condition]]:
        assert namespace == "default"
        if self.fates:
            raise self.fates.popleft()
        return self.on[name]

    async def write(
        self, namespace: str, name: str, version: str, conditions: Sequence[Condition]
    ) -> None:
        there, _ = await self.read(namespace, name)
        assert version == there
        self.writes.append((name, list(conditions)))
        self.on[name] = (str(int(there) + 1), list(conditions))


class VolcanoWorld(World):
    """Volcano's verbs beside the other parts; its plugin asks over HTTP."""

    def __init__(self, cache: Cache, waits: str | None) -> None:
        super().__init__(cache, waits=waits)
        #: (PodGroup, pod or "", sentence)
        self.told: list[tuple[str, str, str]] = []
        self.pods, self.groups = Pods(), PodGroups()
        self.volcano = VolcanoVerbs(
            Parts(
                cache=cache,
                apply=self.apply,
                sessions=Sessions(cache, self.apply, self.planner, self.clock),
                marks=ClaimWriter(self.pods.mark),
                groups=PodGroupConditions(self.groups, self.clock),
                notes=self.notes,
                metrics=self.metrics,
                clock=self.clock,
                tell=self.tell,
            ),
            lambda: waits,
        )
        self.owners[Owner.VOLCANO] = self.volcano.carry_out
        self.session: aiohttp.ClientSession

    def tell(self, job: Job, pod: NpuPod | None, text: str) -> None:
        self.told.append((job.name, pod.name if pod else "", text))

    def pass_s(self, seconds: float = 1.0) -> None:
        super().pass_s(seconds)
        self.volcano.tick()

    def forget(self, name: str) -> None:
        """Let a pod be gone, with what stood on it."""
        self.learn(*gone(name))
        self.pods.on.pop(f"uid-{name}", None)

    async def send(self, verb: str, body: bytes) -> Any:  # any JSON
        async with self.session.post(
            f"/volcano/{verb}", data=io.BytesIO(body)
        ) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            return await answer.json()

    async def ask(self, verb: str, **body: object) -> Any:  # any JSON
        return await self.send(verb, json.dumps(body).encode())

    async def predicate(self, name: str, node: str) -> str:
        """What predicate says; "" if the node fits."""
        answer = await self.ask("predicate", task=task(name), node={"Name": node})
        return str(answer["status"])

    async def fitting(self, name: str, names: Sequence[str]) -> list[str]:
        return [node for node in names if not await self.predicate(name, node)]

    async def best(self, name: str, names: Sequence[str]) -> str:
        nodes = [{"Name": node} for node in names]
        answer = await self.ask("prioritize", task=task(name), nodes=nodes)
        assert answer["errorMessage"] == ""
        scores = answer["nodeScore"]
        return max(names, key=lambda node: float(scores[node]))

    async def allocate(self, name: str, node: str) -> str:
        answer = await self.ask("allocateFunc", task=task(name, Status.ALLOCATED, node))
        return str(answer["errorMessage"])

    async def deallocate(
        self, name: str, node: str = "n1", status: Status = Status.PENDING
    ) -> str:
        answer = await self.ask("deallocateFunc", task=task(name, status, node))
        return str(answer["errorMessage"])

    async def vote(self, *names: str) -> int:
        """What jobEnqueueable says of a PodGroup `g` with these pods."""
        tasks: dict[str, object] = {f"uid-{name}": {} for name in names}
        job = {"Name": "g", "Namespace": "default", "PgUID": "uid-g", "Tasks": tasks}
        answer = await self.ask("jobEnqueueable", job=job)
        return int(answer["status"])


def task(
    name: str, status: Status = Status.PENDING, node: str = "", **more: object
) -> dict[str, Any]:
    """A task; its pod is known by the watch."""
    found = {"UID": f"uid-{name}", "Job": "default/g", "Name": name}
    return {**found, "Status": int(status), "NodeName": node, **more}


@asynccontextmanager
async def volcano(
    cache: Cache, waits: str | None = None
) -> AsyncIterator[VolcanoWorld]:
    world = VolcanoWorld(cache, waits)
    async with asking(world.volcano.routes(), waits) as world.session:
        yield world
    await world.volcano.stop()
    await world.stop()
