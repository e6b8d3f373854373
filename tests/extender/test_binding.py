import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry

from extender import changes
from extender.binding import Binder, Clock
from extender.cache import Cache
from extender.choice import Choice
from extender.metrics import Metrics
from extender.protocol import BindArgs
from scheduler_core.wire.pods import NpuPod
from tests.extender import apiserver
from tests.extender.apiserver import Api, Fate
from tests.extender.clusters import (
    NOW_NS,
    NOW_S,
    RESOURCE,
    Spec,
    apply,
    claim,
    cluster,
    free,
    pod,
    tenant,
)

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
        apply(self.cache, changes.PodSeen(pod=pod(Spec(name=name, count=count))))

    def show(self, name: str) -> None:
        """Let the watch show a pod as the API server has it."""
        meta = self.api.pods["default", name]["metadata"]
        spec = Spec(
            name=name,
            uid=meta["uid"],
            node=self.api.node_of(name),
            annotations=meta.get("annotations", {}),
        )
        apply(self.cache, changes.PodSeen(pod=pod(spec)))


@asynccontextmanager
async def world(cache: Cache, *, open_s: float = 60.0) -> AsyncIterator[World]:
    told: list[tuple[NpuPod, Choice]] = []
    async with apiserver.serving() as (api, pods):
        binder = Binder(
            cache,
            pods,
            clock=Clock(now_s=lambda: NOW_S, now_ns=lambda: NOW_NS),
            metrics=Metrics(CollectorRegistry()),
            told=lambda pod, made: told.append((pod, made)),
            open_s=open_s,
        )
        try:
            yield World(api=api, cache=cache, binder=binder, told=told)
        finally:
            await binder.stop()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():  # what changes has no event to wait for
            await asyncio.sleep(0.005)


@pytest.mark.seed("000-02")
async def test_bind_is_one_call_with_uid_chips_and_time() -> None:
    async with world(cluster()) as w:
        w.add("a", 2)

        assert await w.bind() == ""

        assert w.api.bindings == [
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {
                    "name": "a",
                    "namespace": "default",
                    "uid": "uid-a",
                    "annotations": {
                        RESOURCE: "Ascend910-0,Ascend910-1",
                        "predicate-time": str(NOW_NS),
                    },
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            }
        ]
        assert w.api.reads == 0
        assert [(pod.name, made.promise.node) for pod, made in w.told] == [("a", "n1")]


async def test_the_promise_lasts_until_the_watch_shows_the_pod() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()
        assert list(w.cache.assumed) == ["uid-a"]

        w.show("a")

        assert w.cache.assumed == {}
        assert free(w.cache, "n1") == (1, 2, 3, 4, 5, 6, 7)


@pytest.mark.seed("004-12")
async def test_binds_at_the_same_moment_on_one_node_never_share_a_chip() -> None:
    async with world(cluster()) as w:
        names = [f"p{i}" for i in range(9)]
        for name in names:
            w.add(name)

        said = await asyncio.gather(*(w.bind(name) for name in names))

        assert sorted(said) == [""] * 8 + ["no free chip"]
        given = [b["metadata"]["annotations"][RESOURCE] for b in w.api.bindings]
        assert sorted(given) == [f"Ascend910-{i}" for i in range(8)]


async def test_a_bind_that_no_longer_fits_is_refused_without_a_call() -> None:
    async with world(cluster(tenant("t", "n1", (0, 1, 2, 4, 5, 6)))) as w:
        w.add("a", 2)

        assert await w.bind() == "no HCCS ring has 2 free chips"
        assert w.api.bindings == []


async def test_an_answer_that_is_lost_is_read_again() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.fates.append(Fate.DONE_AND_CUT)

        assert await w.bind() == ""

        assert w.api.reads == 1
        assert list(w.cache.assumed) == ["uid-a"]  # until the watch shows it


async def test_chips_of_a_bind_without_an_outcome_go_to_nobody() -> None:
    async with world(cluster()) as w:
        w.add("a", 8)
        w.add("b", 8)
        w.api.fates.append(Fate.CUT)

        assert await w.bind("a") == UNKNOWN
        assert await w.bind("b") == "fewer than 8 free chips"


async def test_they_are_given_back_when_the_call_has_ended_for_sure() -> None:
    async with world(cluster(), open_s=0.06) as w:
        w.add("a", 8)
        w.api.fates.append(Fate.CUT)
        await w.bind()
        assert free(w.cache, "n1") == ()

        await until(lambda: not w.cache.assumed)

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_call_that_is_executed_late_keeps_its_chips() -> None:
    async with world(cluster(), open_s=0.3) as w:
        w.add("a", 8)
        w.api.fates.append(Fate.CUT)
        await w.bind()
        assert w.api.execute(w.api.bindings[0]).status == 201

        await until(lambda: not w.binder._open)

        assert list(w.cache.assumed) == ["uid-a"]
        w.show("a")
        assert free(w.cache, "n1") == ()


async def test_the_same_bind_tried_again_writes_the_same() -> None:
    async with world(cluster(), open_s=60) as w:
        w.add("a", 2)
        w.api.fates.append(Fate.CUT)
        await w.bind()

        assert await w.bind() == ""

        first, second = w.api.bindings
        assert first == second


async def test_a_retry_that_succeeds_ends_the_looking() -> None:
    async with world(cluster(), open_s=60) as w:
        w.add("a", 2)
        w.api.fates.append(Fate.CUT)
        await w.bind()

        await w.bind()

        assert w.binder._open == {}
        assert list(w.cache.assumed) == ["uid-a"]


async def test_chips_are_not_given_back_while_the_bind_is_tried_again() -> None:
    async with world(cluster(), open_s=0.06) as w:
        w.add("a", 8)
        w.api.fates.extend([Fate.CUT, Fate.WAIT])
        await w.bind()
        again = asyncio.create_task(w.bind())
        await until(lambda: len(w.api.bindings) == 2)

        await asyncio.sleep(0.12)  # the first try is over by now

        assert free(w.cache, "n1") == ()
        w.api.go_on.set()
        assert await again == ""
        assert free(w.cache, "n1") == ()


async def test_a_retry_that_meets_its_own_first_try_has_succeeded() -> None:
    async with world(cluster(), open_s=60) as w:
        w.add("a", 2)
        w.api.fates.append(Fate.CUT)
        await w.bind()
        w.api.execute(w.api.bindings[0])

        assert await w.bind() == ""  # the call was answered with 409
        assert len(w.api.bindings) == 2


async def test_a_refused_retry_does_not_void_the_first_try() -> None:
    async with world(cluster(), open_s=60) as w:
        w.add("a", 2)
        w.api.fates.extend([Fate.CUT, Fate.FORBIDDEN])
        await w.bind()

        assert await w.bind() == UNKNOWN

        assert list(w.cache.assumed) == ["uid-a"]


async def test_an_open_bind_is_not_tried_on_another_node() -> None:
    async with world(cluster(nodes=("n1", "n2"))) as w:
        w.add("a")
        w.api.fates.append(Fate.CUT)
        await w.bind()

        said = await w.bind(where="n2")

        assert said == "an earlier bind of this pod has no known outcome yet"


async def test_a_server_error_is_no_outcome() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.fates.append(Fate.BROKEN)

        assert await w.bind() == UNKNOWN
        assert list(w.cache.assumed) == ["uid-a"]


async def test_without_an_answer_to_the_second_look_the_chips_stay_promised() -> None:
    async with world(cluster(), open_s=0.06) as w:
        w.add("a")
        w.api.is_readable = False
        w.api.fates.append(Fate.CUT)
        assert await w.bind() == UNKNOWN
        await until(lambda: w.api.reads > 3)
        assert list(w.cache.assumed) == ["uid-a"]

        w.api.is_readable = True

        await until(lambda: not w.cache.assumed)


async def test_a_refusal_gives_the_chips_back_at_once() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.fates.append(Fate.FORBIDDEN)

        said = await w.bind()

        assert said.startswith("the API server refused the bind: ")
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_is_gone_gives_the_chips_back() -> None:
    async with world(cluster()) as w:
        w.add("a")
        del w.api.pods["default", "a"]

        assert await w.bind() == "the pod is gone"
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_new_pod_of_the_same_name_is_not_bound_for_the_old_one() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.add("a", "uid-new")

        assert await w.bind() == "the pod is gone"

        assert w.api.node_of("a") == ""
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_another_has_bound_elsewhere_gives_the_chips_back() -> None:
    async with world(cluster(nodes=("n1", "n2"))) as w:
        w.add("a")
        w.api.pods["default", "a"]["spec"]["nodeName"] = "n2"

        assert await w.bind() == "the pod is bound to n2 already"
        assert free(w.cache, "n1") == ALL_FREE


async def test_a_pod_that_is_bound_there_already_needs_no_call() -> None:
    bound = pod(Spec(name="a", node="n1", annotations=claim((0,))))
    async with world(cluster(changes.PodSeen(pod=bound))) as w:
        assert await w.bind() == ""
        assert await w.bind(where="n2") == "the pod is bound to n1 already"
        assert w.api.bindings == []


async def test_a_pod_that_the_watch_has_not_shown_yet_is_read() -> None:
    async with world(cluster()) as w:
        w.api.add("a", "uid-a", 4)

        assert await w.bind() == ""

        assert w.api.reads == 1
        assert free(w.cache, "n1") == (4, 5, 6, 7)


async def test_a_pod_without_npus_is_bound_without_a_claim() -> None:
    async with world(cluster()) as w:
        w.api.add("a", "uid-a", 0)

        assert await w.bind() == ""

        assert w.api.bindings[0]["metadata"]["annotations"] == {}


async def test_a_second_call_for_a_pod_under_way_is_refused() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.fates.append(Fate.WAIT)
        first = asyncio.create_task(w.bind())
        await until(lambda: bool(w.api.bindings))

        assert await w.bind() == "a bind of this pod is under way"

        w.api.go_on.set()
        assert await first == ""


async def test_a_caller_that_goes_away_does_not_end_the_call() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.api.fates.append(Fate.WAIT)
        caller = asyncio.create_task(w.bind())
        await until(lambda: bool(w.api.bindings))
        caller.cancel()

        w.api.go_on.set()

        await until(lambda: bool(w.told))
        assert list(w.cache.assumed) == ["uid-a"]


async def test_a_bound_pod_that_no_watch_ever_shows_is_looked_for() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()
        del w.api.pods["default", "a"]  # while the watch was down
        await w.binder.audit()
        assert list(w.cache.assumed) == ["uid-a"]  # it may still come

        await w.binder.audit(after_s=0)

        assert free(w.cache, "n1") == ALL_FREE


async def test_a_bound_pod_that_the_watch_is_late_to_show_keeps_its_chips() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()

        await w.binder.audit(after_s=0)

        assert list(w.cache.assumed) == ["uid-a"]


async def test_a_call_under_way_comes_to_its_end_before_we_do() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.add("b")
        w.api.fates.append(Fate.WAIT)
        caller = asyncio.create_task(w.bind())
        await until(lambda: bool(w.api.bindings))

        stopping = asyncio.create_task(w.binder.stop())
        await asyncio.sleep(0)
        refused = await w.bind("b")
        w.api.go_on.set()
        await stopping

        assert refused == "the extender is stopping"
        assert await caller == ""
        assert w.api.node_of("a") == "n1"
