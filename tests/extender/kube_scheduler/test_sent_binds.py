import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from extender.kube_scheduler.protocol import BindArgs
from kube import objects
from kube.errors import NotFoundError, UnreachableError
from tests.support.caches import cluster, free, reservations
from tests.support.extender import UNKNOWN, ServedWorld, World, world
from tests.support.fake_api import Fate
from tests.support.objects import pod as pod_object
from tests.support.until import until
from tests.support.watched import ALL_FREE, pod_update


@asynccontextmanager
async def cut_off(
    *then: Fate, open_s: float = 60, count: int = 8
) -> AsyncIterator[ServedWorld]:
    """A world after a bind was cut off; `then`: what the next come to."""
    async with world(cluster(), open_s=open_s) as w:
        w.add("a", count=count, fates=[Fate.CUT, *then])
        await w.bind()
        yield w


async def test_an_answer_that_is_lost_is_read_again() -> None:
    async with world(cluster()) as w:
        w.add("a", fates=[Fate.DONE_AND_CUT])

        assert await w.bind() == ""

        assert w.api.reads == 1
        assert list(reservations(w.cache)) == ["uid-a"]  # until the watch shows it


async def test_chips_of_a_bind_without_an_outcome_go_to_nobody() -> None:
    async with world(cluster()) as w:
        w.add("a", count=8)
        w.add("b", count=8)
        w.api.fates.append(Fate.CUT)

        assert await w.bind("a") == UNKNOWN
        assert await w.bind("b") == "without 8 free chips"


async def test_they_are_given_back_when_the_call_has_ended_for_sure() -> None:
    async with cut_off(open_s=0.5) as w:
        assert free(w.cache, "n1") == ()

        await until(lambda: not reservations(w.cache))

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_call_that_is_executed_late_keeps_its_chips() -> None:
    async with cut_off(open_s=5) as w:
        assert w.api.execute(w.api.bindings[0]).status == 201

        await until(lambda: not w.sent_binds._open_binds)

        assert list(reservations(w.cache)) == ["uid-a"]
        w.show("a")
        assert free(w.cache, "n1") == ()


async def test_the_same_bind_tried_again_writes_the_same() -> None:
    async with cut_off(count=2) as w:
        assert await w.bind() == ""

        first, second = w.api.bindings
        assert first == second


async def test_a_retry_that_succeeds_ends_the_looking() -> None:
    async with cut_off() as w:
        await w.bind()

        assert w.sent_binds._open_binds == {}
        assert list(reservations(w.cache)) == ["uid-a"]


async def test_chips_are_not_given_back_while_the_bind_is_tried_again() -> None:
    async with cut_off(Fate.WAIT, open_s=0.06) as w:
        again = w.bind()
        await until(lambda: len(w.api.bindings) == 2)

        await asyncio.sleep(0.12)  # the first try is over by now

        assert free(w.cache, "n1") == ()
        w.api.go_on.set()
        assert await again == ""
        assert free(w.cache, "n1") == ()


async def test_a_retry_that_meets_its_own_first_try_has_succeeded() -> None:
    async with cut_off() as w:
        w.api.execute(w.api.bindings[0])

        assert await w.bind() == ""  # the call was answered with 409
        assert len(w.api.bindings) == 2


async def test_a_refused_retry_does_not_void_the_first_try() -> None:
    async with cut_off(Fate.FORBIDDEN) as w:
        assert await w.bind() == UNKNOWN

        assert list(reservations(w.cache)) == ["uid-a"]


async def test_a_bind_that_was_done_is_not_sent_again_while_the_watch_is_late() -> None:
    async with world(cluster()) as w:
        w.add("a", count=8)
        assert await w.bind() == ""
        w.api.fates.append(Fate.FORBIDDEN)

        assert await w.bind() == ""
        assert await w.bind(where="n2") == "the pod is bound to n1 already"

        assert len(w.api.bindings) == 1
        assert free(w.cache, "n1") == ()


async def test_an_open_bind_is_not_tried_on_another_node() -> None:
    async with world(cluster(nodes=("n1", "n2"))) as w:
        w.add("a", fates=[Fate.CUT])
        await w.bind()

        text = await w.bind(where="n2")

        assert text == "an earlier bind of this pod has no known outcome yet"


async def test_a_server_error_is_no_outcome() -> None:
    async with world(cluster()) as w:
        w.add("a", fates=[Fate.BROKEN])

        assert await w.bind() == UNKNOWN
        assert list(reservations(w.cache)) == ["uid-a"]


async def test_without_an_answer_to_the_second_look_the_chips_stay_promised() -> None:
    async with world(cluster(), open_s=0.5) as w:
        w.add("a")
        w.api.is_readable = False
        w.api.fates.append(Fate.CUT)
        assert await w.bind() == UNKNOWN
        await until(lambda: w.api.reads > 3)
        assert list(reservations(w.cache)) == ["uid-a"]

        w.api.is_readable = True

        await until(lambda: not reservations(w.cache))


async def idle(w: ServedWorld) -> None:
    """Let the binder read what it wants to read."""
    await asyncio.gather(*w.sent_binds._read_tasks)


async def test_a_bound_pod_that_no_watch_ever_shows_is_looked_for() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()
        del w.api.pods["default", "a"]  # while the watch was down
        w.pass_s(64)
        await idle(w)
        assert list(reservations(w.cache)) == ["uid-a"]  # it may still come

        w.pass_s(1)
        await idle(w)

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_bound_pod_that_the_watch_is_late_to_show_keeps_its_chips() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()

        w.pass_s(65)
        await idle(w)

        assert list(reservations(w.cache)) == ["uid-a"]


async def test_what_the_watch_shows_before_the_answer_leaves_nothing_behind() -> None:
    async with world(cluster()) as w:
        w.add("a", fates=[Fate.WAIT])
        call = w.bind()
        await until(lambda: w.api.unanswered == 1)
        bound = w.api.pods["default", "a"]
        w.api.execute(w.api.bindings[-1])
        w.show("a")
        del bound["spec"]["nodeName"]  # the answer comes later than the event

        w.api.go_on.set()

        assert await call == ""
        assert (w.sent_binds._unconfirmed, reservations(w.cache)) == ({}, {})


class SlowReads:
    """An API server that loses the first bind, and answers the second read late."""

    def __init__(self) -> None:
        self.node, self.reads, self.is_lost = "", 0, True
        self.go_on = asyncio.Event()

    async def get(self, _namespace: str, _name: str) -> objects.Pod:
        self.reads += 1
        if self.reads == 2:
            await self.go_on.wait()
        made = pod_object("a", 1, meta={"uid": "uid-a"}, node=self.node)
        return msgspec.convert(made, objects.Pod)

    async def bind(self, args: BindArgs, _annotations: object) -> None:
        if self.is_lost:
            self.is_lost = False
            raise UnreachableError("cut")
        self.node = args.node


async def test_a_pod_is_told_to_be_bound_once_however_often_it_is_read() -> None:
    api = SlowReads()
    w = World(cluster(pod_update("a")), api, open_s=3.0)
    assert await w.bind() == UNKNOWN
    await until(lambda: api.reads == 2)
    assert await w.bind() == ""

    api.go_on.set()
    await asyncio.gather(*w.sent_binds._read_tasks)

    assert [pod.name for pod, _ in w.bound] == ["a"]
    await w.stop()


async def test_a_read_that_finds_a_lost_bind_done_tells_of_it_once() -> None:
    async with world(cluster(), open_s=0.5) as w:
        w.add("a", fates=[Fate.DONE_AND_CUT])

        assert await w.bind() == ""

        assert [pod.name for pod, _ in w.bound] == ["a"]


async def test_a_bind_that_is_found_done_before_its_answer_is_told_once() -> None:
    async with cut_off(Fate.WAIT, open_s=0.5) as w:
        again = w.bind()
        await until(lambda: len(w.api.bindings) == 2)
        w.api.execute(w.api.bindings[0])
        await until(lambda: not w.sent_binds.has_open)

        w.api.go_on.set()

        assert await again == ""  # the call was answered with 409
        assert [pod.name for pod, _ in w.bound] == ["a"]


class StumblingReads(SlowReads):
    """An API server whose pod was deleted, and that first breaks what reads it."""

    async def get(self, _namespace: str, _name: str) -> objects.Pod:
        self.reads += 1
        if self.reads == 1:
            raise RuntimeError("not foreseen")
        raise NotFoundError(404, "NotFound", "it is gone")


async def test_a_failed_read_of_unseen_pods_is_begun_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = StumblingReads()
    api.is_lost = False
    w = World(cluster(pod_update("a"), pod_update("b")), api)
    assert (await w.bind("a"), await w.bind("b")) == ("", "")
    for _ in range(2):
        w.pass_s(65)
        await asyncio.gather(*w.sent_binds._read_tasks, return_exceptions=True)

    w.pass_s(65)
    await asyncio.gather(*w.sent_binds._read_tasks)

    assert reservations(w.cache) == {}
    assert "reads of sent binds have failed" in caplog.text
    await w.stop()


async def test_a_failed_read_of_an_open_bind_is_begun_anew() -> None:
    api = StumblingReads()
    w = World(cluster(pod_update("a")), api, open_s=0.5)
    with pytest.raises(RuntimeError):
        await w.bind()
    assert w.sent_binds.has_open

    w.pass_s(65)
    await until(lambda: not w.sent_binds.has_open)

    assert reservations(w.cache) == {}
    await w.stop()
