"""Jobs of several pods, and what plans and binds them, in a time that a test turns."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from extender.cache import events
from extender.cache.cache import Cache, step
from extender.clocks import Clock
from extender.gang.gangs import Phase
from extender.kube_scheduler.binder import AT_ONCE, Binder
from extender.kube_scheduler.protocol import BindArgs
from extender.metrics import Metrics
from extender.planning.plan import TopologySnapshot
from extender.planning.planner import Planner
from scheduler_core.placement.job_rules import Profile
from tests.extender import fake_api
from tests.extender.binds import until
from tests.extender.clusters import (
    NOW_S,
)
from tests.extender.fake_api import Api
from tests.extender.jobpods import member
from tests.extender.jobsapi import Jobs

NAMES = ("n1", "n2")


@dataclass(slots=True)
class Time:
    """A clock that a test turns."""

    now_s: float = NOW_S


@dataclass(slots=True)
class World:
    api: Api
    cache: Cache
    planner: Planner
    binder: Binder
    jobs: Jobs
    time: Time
    there: bool = True

    def add(self, *seen: events.PodUpdated) -> None:
        """Pods that API server and watch know."""
        for each in seen:
            self.api.add(each.pod.name, each.pod.uid, each.pod.total)
            self.learn(each)

    def learn(self, *found: events.Change) -> None:
        for each in found:
            step(self.cache, each, self.time.now_s)
            self.planner.carry_out_effects()

    def filter(self, name: str, names: Sequence[str] = NAMES) -> list[str]:
        """The nodes that filter leaves to a pod."""
        result = self.planner.filter_nodes(self.cache.pods[f"uid-{name}"], names)
        assert result is not None
        return list(result.fitting)

    def why(self, name: str, names: Sequence[str] = NAMES) -> tuple[str, ...]:
        """What filter says where it leaves no node."""
        result = self.planner.filter_nodes(self.cache.pods[f"uid-{name}"], names)
        assert result is not None
        assert result.fitting == ()
        return tuple(text for text, _ in result.counts)

    def bind(self, name: str, where: str) -> asyncio.Task[str]:
        args = BindArgs(namespace="default", name=name, uid=f"uid-{name}", node=where)
        call = self.binder.bind(args, is_there=lambda: self.there)
        return asyncio.create_task(call)

    async def until_came(self, count: int) -> None:
        await until(lambda: len(self.planner._waiting_binds) == count)

    def pass_s(self, seconds: float) -> None:
        self.time.now_s += seconds
        self.learn(events.Ticked())
        self.planner.tick()

    @property
    def phase(self) -> Phase:
        (gang,) = self.cache.gangs.jobs.values()
        return gang.phase

    def is_(self, phase: Phase) -> bool:
        """Whether the only job is that far."""
        return self.phase is phase


@asynccontextmanager
async def world(
    cache: Cache, *, rules: Profile = Profile.SEED, at_once: int = AT_ONCE
) -> AsyncIterator[World]:
    time, jobs = Time(), Jobs()
    clock = Clock(now_s=lambda: time.now_s, now_ns=lambda: int(time.now_s * 1e9))
    async with fake_api.serving() as (api, pods):
        planner = Planner(
            cache,
            jobs,
            clock=clock,
            topology=lambda _gang: TopologySnapshot(profile=rules),
        )
        binder = Binder(
            cache,
            pods,
            permits=planner,
            clock=clock,
            metrics=Metrics(CollectorRegistry()),
            on_bound=lambda _pod, _made: None,
            at_once=at_once,
        )
        try:
            yield World(api, cache, planner, binder, jobs, time)
        finally:
            await planner.stop()
            await binder.stop()


def two() -> tuple[events.PodUpdated, events.PodUpdated]:
    """Both pods of a job."""
    return member("a"), member("b")
