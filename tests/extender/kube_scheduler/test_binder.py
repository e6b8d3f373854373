import asyncio

import pytest

from extender.cache import events
from extender.kube_scheduler import binder
from tests.support.caches import cluster, free, reservations
from tests.support.clock import NOW_NS
from tests.support.extender import ServedWorld, world
from tests.support.fake_api import Fate
from tests.support.until import until
from tests.support.watched import ALL_FREE, RESOURCE, claim, pod, tenant


@pytest.mark.seed("000-02")
async def test_bind_is_one_call_with_uid_chips_and_time() -> None:
    async with world(cluster()) as w:
        w.add("a", count=2)

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
                        "distributed-job": "false",
                    },
                },
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            }
        ]
        assert w.api.reads == 0
        assert [(pod.name, made.reservation.node) for pod, made in w.bound] == [
            ("a", "n1")
        ]


async def test_the_promise_lasts_until_the_watch_shows_the_pod() -> None:
    async with world(cluster()) as w:
        w.add("a")
        await w.bind()
        assert list(reservations(w.cache)) == ["uid-a"]

        w.show("a")

        assert reservations(w.cache) == {}
        assert free(w.cache, "n1") == (1, 2, 3, 4, 5, 6, 7)


@pytest.mark.seed("004-12")
async def test_binds_at_the_same_moment_on_one_node_never_share_a_chip() -> None:
    async with world(cluster()) as w:
        names = [f"p{i}" for i in range(9)]
        for name in names:
            w.add(name)

        text = await asyncio.gather(*(w.bind(name) for name in names))

        assert sorted(text) == [""] * 8 + ["no free chip"]
        given = [b["metadata"]["annotations"][RESOURCE] for b in w.api.bindings]
        assert sorted(given) == [f"Ascend910-{i}" for i in range(8)]


async def test_a_bind_that_no_longer_fits_is_refused_without_a_call() -> None:
    async with world(cluster(tenant("t", "n1", (0, 1, 2, 4, 5, 6)))) as w:
        w.add("a", count=2)

        assert await w.bind() == "no HCCS ring has 2 free chips"
        assert w.api.bindings == []


async def test_a_refusal_gives_the_chips_back_at_once() -> None:
    async with world(cluster()) as w:
        w.add("a", fates=[Fate.FORBIDDEN])

        text = await w.bind()

        assert text.startswith("the API server refused the bind: ")
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
    bound = pod("a", node="n1", annotations=claim((0,)))
    async with world(cluster(events.PodUpdated(pod=bound))) as w:
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
        w.add("a", fates=[Fate.WAIT])
        first = w.bind()
        await until(lambda: bool(w.api.bindings))

        assert await w.bind() == "a bind of this pod is under way"

        w.api.go_on.set()
        assert await first == ""


async def test_a_caller_that_goes_away_does_not_end_the_call() -> None:
    async with world(cluster()) as w:
        w.add("a", fates=[Fate.WAIT])
        caller = w.bind()
        await until(lambda: bool(w.api.bindings))
        caller.cancel()

        w.api.go_on.set()

        await until(lambda: bool(w.bound))
        assert list(reservations(w.cache)) == ["uid-a"]


async def test_a_call_under_way_comes_to_its_end_before_we_do() -> None:
    async with world(cluster()) as w:
        w.add("a")
        w.add("b")
        w.api.fates.append(Fate.WAIT)
        caller = w.bind()
        await until(lambda: bool(w.api.bindings))

        stopping = asyncio.create_task(w.binder.stop())
        await asyncio.sleep(0)
        refused = await w.bind("b")
        w.api.go_on.set()
        await stopping

        assert refused == "the extender is stopping"
        assert await caller == ""
        assert w.api.node_of("a") == "n1"


#: Four more than are sent at the same time, and nodes with a chip for each.
MANY = [f"p{number}" for number in range(binder.AT_ONCE + 4)]
NODES = [f"n{number}" for number in range(4)]


def begin_many(w: ServedWorld) -> list[asyncio.Task[str]]:
    """Bind more pods than are bound at the same time; the API server lets them wait."""
    w.api.fates.extend([Fate.WAIT] * len(MANY))
    for name in MANY:
        w.add(name)
    return [
        w.bind(name, NODES[number % len(NODES)]) for number, name in enumerate(MANY)
    ]


async def test_more_binds_than_there_are_turns_wait_and_lose_none_of_their_time() -> (
    None
):
    """A call that waits for a connection may be over before it has been sent."""
    async with world(cluster(nodes=NODES)) as w:
        calls = begin_many(w)
        await until(lambda: len(w.api.bindings) == binder.AT_ONCE)
        w.api.go_on.set()

        assert await asyncio.gather(*calls) == [""] * len(MANY)
        assert w.api.unanswered_most == binder.AT_ONCE
        assert len(w.api.bindings) == len(MANY)


async def test_a_bind_that_still_waits_for_its_turn_is_refused_when_we_stop() -> None:
    async with world(cluster(nodes=NODES)) as w:
        calls = begin_many(w)
        await until(lambda: len(w.api.bindings) == binder.AT_ONCE)
        stopping = asyncio.create_task(w.binder.stop())
        await asyncio.sleep(0)
        w.api.go_on.set()
        await stopping

        text = await asyncio.gather(*calls)
        assert sorted(text) == [""] * binder.AT_ONCE + ["the extender is stopping"] * 4
        assert len(w.api.bindings) == binder.AT_ONCE
        assert len(reservations(w.cache)) == binder.AT_ONCE
