import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.apiserver.wake import MARKED_MOST, SchedulerWaker
from kube.errors import NotFoundError, UnreachableError
from tests.support.tasks import in_background

pytestmark = pytest.mark.looptime


class Marks:
    """The nodes that were marked, and those that cannot be."""

    def __init__(self) -> None:
        self.marked: list[str] = []
        self.failures: dict[str, Exception] = {}

    async def __call__(self, name: str) -> None:
        await asyncio.sleep(0)
        if name in self.failures:
            raise self.failures[name]
        self.marked.append(name)


@asynccontextmanager
async def running() -> AsyncIterator[tuple[SchedulerWaker, Marks]]:
    marks = Marks()
    waker = SchedulerWaker(marks)
    async with in_background(waker.run()):
        yield waker, marks
        await asyncio.sleep(30)


async def test_a_node_that_offers_more_wakes_the_scheduler_while_a_pod_waits() -> None:
    async with running() as (waker, marks):
        waker.note_refused()
        waker.note_improved({"node-2"})

    assert marks.marked == ["node-2"]


async def test_nobody_is_woken_while_no_pod_waits() -> None:
    async with running() as (waker, marks):
        waker.note_improved({"node-2"})

    assert marks.marked == []


async def test_it_wakes_once_for_each_refusal() -> None:
    async with running() as (waker, marks):
        waker.note_refused()
        waker.note_improved({"node-1"})
        await asyncio.sleep(1)
        waker.note_improved({"node-2"})
        await asyncio.sleep(1)
        waker.note_refused()
        waker.note_improved({"node-3"})

    assert marks.marked == ["node-1", "node-3"]


async def test_what_becomes_free_together_wakes_together_and_is_bounded() -> None:
    async with running() as (waker, marks):
        waker.note_refused()
        for number in range(100):
            waker.note_improved({f"node-{number:03}"})

    assert marks.marked == [f"node-{number:03}" for number in range(MARKED_MOST)]


async def test_an_api_server_that_is_away_is_tried_again() -> None:
    async with running() as (waker, marks):
        marks.failures["node-2"] = UnreachableError("connection refused")
        waker.note_refused()
        waker.note_improved({"node-1", "node-2"})
        await asyncio.sleep(10)
        marks.failures.clear()

    assert marks.marked == ["node-1", "node-2"]


async def test_a_node_that_is_gone_is_passed_over() -> None:
    async with running() as (waker, marks):
        marks.failures["node-1"] = NotFoundError(404, "NotFound", "no such node")
        waker.note_refused()
        waker.note_improved({"node-1", "node-2"})

    assert marks.marked == ["node-2"]
