"""A binder over a cache and an API server, and what a test asks of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from extender.cache import events
from extender.cache.cache import Cache
from extender.clocks import Clock
from extender.kube_scheduler.binder import Binder
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import Metrics
from extender.planning.planner import Planner
from extender.scheduling.reserve import Choice
from scheduler_core.wire.pods import NpuPod
from tests.extender import fake_api
from tests.extender.clusters import (
    NOW_NS,
    NOW_S,
    Spec,
    apply,
    pod,
)
from tests.extender.fake_api import Api
from tests.extender.jobsapi import Jobs

ALL_FREE = (0, 1, 2, 3, 4, 5, 6, 7)


UNKNOWN = "the API server gave no clear answer to the bind; it is looked into"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    api: Api
    cache: Cache
    binder: Binder
    told: list[tuple[NpuPod, Choice]]

    async def bind(self, name: str = "a", where: str = "n1", uid: str = "") -> str:
        return await self.binder.bind(
            BindArgs(
                namespace="default", name=name, uid=uid or f"uid-{name}", node=where
            )
        )

    def add(self, name: str, count: int = 1) -> None:
        """A pod that API server and watch know."""
        self.api.add(name, f"uid-{name}", count)
        apply(self.cache, events.PodUpdated(pod=pod(Spec(name=name, count=count))))

    def show(self, name: str) -> None:
        """Let the watch show a pod as the API server has it."""
        meta = self.api.pods["default", name]["metadata"]
        spec = Spec(
            name=name,
            uid=meta["uid"],
            node=self.api.node_of(name),
            annotations=meta.get("annotations", {}),
        )
        apply(self.cache, events.PodUpdated(pod=pod(spec)))


@asynccontextmanager
async def world(
    cache: Cache, *, open_s: float = 60.0, registry: CollectorRegistry | None = None
) -> AsyncIterator[World]:
    told: list[tuple[NpuPod, Choice]] = []
    async with fake_api.serving() as (api, pods):
        wall = Clock(now_s=lambda: NOW_S, now_ns=lambda: NOW_NS)
        planner = Planner(cache, Jobs(), clock=wall)
        binder = Binder(
            cache,
            pods,
            permits=planner,
            clock=wall,
            metrics=Metrics(registry or CollectorRegistry()),
            on_bound=lambda pod, made: told.append((pod, made)),
            open_s=open_s,
        )
        try:
            yield World(api=api, cache=cache, binder=binder, told=told)
        finally:
            await binder.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # what changes has no event to wait for
            await asyncio.sleep(0.005)
