"""A mover with its cache, an API server that answers as it is told, and its events."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from extender.cache import events
from extender.dispatch import Dispatcher, Router, ignore
from extender.planning import plan_input
from extender.preemption.attempt import Outcome, Victim
from extender.rescheduling import record
from extender.rescheduling.ends import End
from extender.rescheduling.mover import Mover
from extender.rescheduling.moves import (
    KeptPlace,
    MoveEvent,
)
from kube.errors import (
    KubeError,
    UnreachableError,
)
from kube.objects import Meta
from scheduler_core.products.lookup import Traits
from scheduler_core.wire.pods import NpuPod
from tests.extender.rescheduling.jobs import of_job
from tests.support.caches import cluster
from tests.support.clock import Time
from tests.support.extender import clock_of
from tests.support.watched import ALL, RESOURCE

NAMES = ("n1", "n2", "n3")


@dataclass(slots=True)
class Api:
    """What is asked of the API server, answered at once unless it is slow."""

    ends: Mapping[str, End] | str = "not now"
    #: which budget refuses; "" if none does
    budget: str = ""
    outcome: tuple[Outcome, str] = (Outcome.YES, "")
    records: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    is_down: bool = False
    error: KubeError = field(default_factory=lambda: UnreachableError("no answer"))
    has_job_ended: bool = False
    #: until when writes wait; None: they do not
    gate: asyncio.Event | None = None
    #: what was asked, in order
    asked: list[Any] = field(default_factory=list)
    told: list[tuple[str, str, str]] = field(default_factory=list)

    async def end_pod(self, pod: Victim, *, is_forced: bool) -> tuple[Outcome, str]:
        if self.gate is not None:
            await self.gate.wait()
        self.asked.append((pod, is_forced))
        return self.outcome

    async def read_ends(
        self, leaving: Mapping[str, tuple[str, Meta]]
    ) -> Mapping[str, End] | str:
        self.asked.append(dict(leaving))
        return self.ends

    async def ask_budgets(self, leaving: Mapping[str, tuple[str, Meta]]) -> str:
        self.asked.append(sorted(leaving))
        return self.budget

    async def has_ended(self, controllers: Collection[str]) -> bool:
        self.asked.append(("has ended", *controllers))
        return self.has_job_ended

    async def find_records(self) -> list[tuple[str, Mapping[str, str]]]:
        self.asked.append("records")
        if self.is_down:
            raise self.error
        return self.records

    async def write_record(self, job: str, data: Mapping[str, str]) -> bool:
        if self.gate is not None:
            await self.gate.wait()
        written = record.parse(data)
        self.asked.append((job, written.owner, *written.controllers))
        return not self.is_down

    async def delete_record(self, job: str) -> bool:
        self.asked.append(f"delete {job}")
        return not self.is_down

    def tell(self, pod: NpuPod, reason: str, text: str) -> None:
        self.told.append((pod.name, reason, text))


class World:
    """A cache and a mover, in simulated time."""

    def __init__(self, *seen: events.Change) -> None:
        self.cache, self.time, self.api = cluster(*seen, nodes=NAMES), Time(), Api()
        clock = clock_of(self.time)
        dispatcher = Dispatcher(self.cache, clock)
        self.reported: list[MoveEvent] = []
        #: why the extender does not lead
        self.why_not_leading: str | None = None
        self.mover = Mover(
            self.cache,
            dispatcher.apply,
            self.api,
            clock=clock,
            topology=lambda _gang: plan_input.PLAIN,
            wake=lambda: None,
            tell=self.api.tell,
            report=self.reported.append,
            why_not_leading=lambda: self.why_not_leading,
        )
        router = Router(
            permits=ignore,
            job_calls=ignore,
            waker=ignore,
            owners={},
            rescheduler=self.mover.returns.carry_out,
        )
        dispatcher.connect(
            lambda effect: (
                router.carry_out(effect)
                if isinstance(effect, events.PlaceCleared)
                else None
            )
        )
        self.learn = dispatcher.apply

    async def settled(self) -> None:
        while self.mover._tasks:
            await asyncio.gather(*self.mover._tasks)


@asynccontextmanager
async def world(*seen: events.Change) -> AsyncIterator[World]:
    found = World(*seen)
    try:
        yield found
    finally:
        await found.mover.stop()


def pair(**labels: str) -> list[events.PodUpdated]:
    """A job of two whose pods have these labels, and the label `number`."""
    return [
        marked(of_job("a", "n1", ALL), number="0", **labels),
        marked(of_job("b", "n2", ALL), number="1", **labels),
    ]


def marked(found: events.PodUpdated, **labels: str) -> events.PodUpdated:
    assert found.member is not None
    traits = Traits(labels=labels, annotations={})
    return replace(found, member=replace(found.member, traits=traits))


def place(name: str, where: str) -> KeptPlace:
    return KeptPlace(
        uid=f"uid-{name}",
        name=name,
        namespace="default",
        slot=("", (0, 0)),
        resource=RESOURCE,
        node=where,
        chips=255,
    )
