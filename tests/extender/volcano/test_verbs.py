"""Volcano's verbs, one by one and through a session."""

import json
from typing import Any

import pytest

from extender.cache import events
from extender.volcano.protocol import Status
from extender.volcano.sessions import UNBOUND_S
from extender.volcano.verbs import OPEN_S
from kube.errors import ApiError, UnreachableError
from scheduler_core.wire.annotations import ALLOCATED_ON
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.extender.volcanos import task, volcano
from tests.support import objects
from tests.support.caches import cluster, damage, free
from tests.support.rows import rows
from tests.support.until import until
from tests.support.watched import ALL, RESOURCE, claim, pod_update, tenant

NODES = ("n1", "n2", "n3")


# -- pods that are jobs by themselves ----------------------------------------------


async def test_predicate_says_of_each_node_why_not_and_if_eviction_can_help() -> None:
    cache = cluster(
        tenant("a", "n1", ALL), tenant("b", "n2", (0, 1, 4, 5)), nodes=NODES
    )
    async with volcano(cache) as world:
        world.learn(pod_update("p", 4))
        answers = [
            await world.ask("predicate", task=task("p"), node={"Name": node})
            for node in (*NODES, "elsewhere")
        ]

    assert answers == [
        {"status": "without 4 free chips", "code": 2},
        {"status": "no HCCS ring has 4 free chips", "code": 3},
        {"status": "", "code": 0},
        {"status": "no such NPU", "code": 3},
    ]


async def test_prioritize_tells_classes_apart_by_more_than_others_can_add() -> None:
    cache = cluster(tenant("a", "n2", (0, 1, 2)), pod_update("p", 1), nodes=NODES)
    async with volcano(cache) as world:
        nodes = [{"Name": node} for node in NODES]
        answer = await world.ask("prioritize", task=task("p"), nodes=nodes)

    assert answer == {
        "nodeScore": {"n1": 90_000.0, "n2": 100_000.0, "n3": 90_000.0},
        "errorMessage": "",
    }


async def test_allocated_means_promised_and_written_and_given_back_means_gone() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        assert await world.allocate("p", "n1") == ""

        written = dict(world.pods.on["uid-p"])
        time = written.pop("predicate-time")
        assert written == {
            RESOURCE: "Ascend910-0,Ascend910-1",
            "distributed-job": "false",
            ALLOCATED_ON: "n1",
        }
        assert int(time) > 0
        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)

        assert await world.deallocate("p") == ""
        assert world.pods.on["uid-p"] == {}
        assert free(world.cache, "n1") == tuple(ALL)
        assert await world.deallocate("p") == ""
        assert await world.deallocate("unknown") == ""
        assert len(world.pods.writes) == 2


async def test_two_pods_of_one_session_never_share_a_chip() -> None:
    async with volcano(cluster()) as world:
        world.learn(pod_update("p", 4), pod_update("q", 4), pod_update("r", 4))
        assert await world.allocate("p", "n1") == ""
        assert await world.allocate("q", "n1") == ""

        assert await world.predicate("r", "n1") == "without 4 free chips"
        assert await world.allocate("r", "n1") == "without 4 free chips"

        chips = [world.pods.on[f"uid-{name}"][RESOURCE] for name in "pq"]
        assert sorted(chips) == [
            ",".join(f"Ascend910-{chip}" for chip in ring)
            for ring in (range(4), range(4, 8))
        ]


@pytest.mark.parametrize("status", [Status.PIPELINED, Status.RUNNING])
async def test_only_allocated_tasks_get_chips(status: Status) -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        body = task("p", status, "n1")
        answer = await world.ask("allocateFunc", task=body)

        assert answer == {"errorMessage": ""}
        assert world.pods.writes == []
        assert free(world.cache, "n1") == tuple(ALL)


async def test_both_verbs_leave_bound_pods_alone() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        await world.allocate("p", "n1")
        bound = pod_update("p", count=2, node="n1", annotations=claim((0, 1)))
        world.learn(bound)
        before = dict(world.pods.on["uid-p"])

        assert await world.deallocate("p", status=Status.RELEASING) == ""
        assert await world.deallocate("p") == ""
        assert await world.allocate("p", "n1") == ""
        world.volcano.tick()
        assert await world.deallocate("p") == ""

        assert world.pods.on["uid-p"] == before
        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)


async def test_a_victim_that_no_watch_has_shown_as_bound_keeps_its_chips() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        await world.allocate("p", "n1")

        await world.deallocate("p", status=Status.RELEASING)

        assert RESOURCE in world.pods.on["uid-p"]
        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)


async def test_what_cannot_be_written_is_refused_given_back_and_taken_away() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        world.pods.fates.append(UnreachableError("cut off"))  # written all the same

        said = await world.allocate("p", "n1")

        assert said.startswith("the API server: ")
        assert free(world.cache, "n1") == tuple(ALL)
        await until(lambda: world.pods.on["uid-p"] == {})
        assert await world.deallocate("p") == ""


async def test_what_cannot_be_taken_away_is_tried_until_it_is() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        await world.allocate("p", "n1")
        world.pods.fates.extend([ApiError(500, "InternalError", "no")] * 2)
        world.pods.go_on.clear()
        world.pods.on["uid-p"]["kept"] = "yes"

        answer = world.deallocate("p")
        world.pods.go_on.set()
        assert (await answer).startswith("the API server: ")
        assert free(world.cache, "n1") == tuple(ALL)

        world.volcano.tick()
        await until(lambda: len(world.pods.writes) == 3)
        world.volcano.tick()
        await until(lambda: len(world.pods.writes) == 4)
        world.volcano.tick()
        assert world.pods.on["uid-p"] == {"kept": "yes"}


async def test_a_pod_that_is_asked_for_again_long_after_has_lost_its_chips() -> None:
    cache = cluster(pod_update("p", 2), nodes=("n1", "n2"))
    async with volcano(cache) as world:
        await world.allocate("p", "n1")
        assert "earlier bind" in await world.predicate("p", "n2")
        assert await world.predicate("p", "n1") == ""

        world.time.now_s += OPEN_S
        assert await world.predicate("p", "n2") == ""

        assert free(world.cache, "n1") == tuple(ALL)
        await until(lambda: world.pods.on["uid-p"] == {})


async def test_what_volcano_never_binds_is_given_back_in_the_end() -> None:
    async with volcano(cluster(pod_update("p", 2))) as world:
        await world.allocate("p", "n1")
        world.pass_s(UNBOUND_S - 1)
        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)

        world.pass_s(1)

        assert free(world.cache, "n1") == tuple(ALL)
        await until(lambda: world.pods.on["uid-p"] == {})


async def test_without_any_node_nothing_is_refused_in_advance() -> None:
    async with volcano(cluster(pod_update("p"), nodes=())) as world:
        assert (await world.vote("p"), world.told) == (0, [])


async def test_a_pod_that_no_watch_shows_yet_is_not_forgotten() -> None:
    async with volcano(cluster()) as world:
        sent = objects.pod("p", 2, meta={"uid": "uid-p"})
        placed = task("p", Status.ALLOCATED, "n1", Pod=sent)
        assert (await world.ask("allocateFunc", task=placed))["errorMessage"] == ""

        world.pass_s(1)
        assert await world.deallocate("p") == ""

        assert free(world.cache, "n1") == tuple(ALL)


async def test_who_starts_anew_takes_over_what_was_allocated_before() -> None:
    marked = {**claim((0, 1), 7), ALLOCATED_ON: "n1"}
    stale = {**claim((0, 1), 8), ALLOCATED_ON: "n1", "mine": "yes"}
    cache = cluster(
        pod_update("p", count=2, annotations=marked),
        pod_update("q", count=2, annotations=stale),
    )
    async with volcano(cache) as world:
        world.pods.on = {"uid-p": dict(marked), "uid-q": dict(stale)}

        world.volcano.adopt()

        assert free(world.cache, "n1") == (2, 3, 4, 5, 6, 7)
        await until(lambda: world.pods.on["uid-q"] == {"mine": "yes"})
        assert await world.deallocate("p") == ""
        assert world.pods.on["uid-p"] == {}
        assert free(world.cache, "n1") == tuple(ALL)


# -- whom to evict ---------------------------------------------------------------------


async def test_the_least_important_whose_chips_make_a_ring_are_the_victims() -> None:
    cache = cluster(
        tenant("a", "n1", (0, 1)),
        tenant("b", "n1", (2, 3)),
        tenant("c", "n1", (4, 5, 6, 7)),
        tenant("d", "n2", (0, 4)),
        nodes=("n1", "n2"),
    )
    running = {
        name: task(name, Status.RUNNING, node, Priority=priority)
        for name, node, priority in (
            ("a", "n1", 1),
            ("b", "n1", 2),
            ("c", "n1", 9),
            ("plain", "n1", 0),
        )
    }
    async with volcano(cache) as world:
        world.learn(pod_update("p", 4), pod_update("q", 8))
        evictees = list(running.values())

        some = await world.ask("preemptable", evictor=task("p"), evictees=evictees)
        every = await world.ask("reclaimable", evictor=task("q"), evictees=evictees)
        other = [task("d", Status.RUNNING, "n2")]
        small = await world.ask("preemptable", evictor=task("p"), evictees=other)

    assert some == {"status": 1, "victims": [running["a"], running["b"]]}
    assert every == {"status": 1, "victims": [running[name] for name in "abc"]}
    assert small == {"status": 1, "victims": other}


@rows(
    "seen",
    {
        "they give no ring": (tenant("a", "n1", (0, 1)), tenant("b", "n1", (2, 4))),
        "the pod may go nowhere": (tenant("a", "n1", ALL), events.Ticked(lost="pods")),
    },
)
async def test_where_eviction_does_not_help_there_are_no_victims(
    seen: tuple[events.Change, ...],
) -> None:
    async with volcano(cluster(*seen, pod_update("p", 4))) as world:
        one = [task("a", Status.RUNNING, "n1")]
        assert await world.ask("preemptable", evictor=task("p"), evictees=one) == {
            "status": -1,
            "victims": [],
        }


# -- failures ------------------------------------------------------------------------

VERBS = (
    *("predicate", "prioritize", "jobEnqueueable", "allocateFunc", "deallocateFunc"),
    *("preemptable", "reclaimable"),
)


def no_answer(verb: str, text: str) -> dict[str, Any]:
    """What a verb says that cannot answer; not all have words."""
    match verb:
        case "predicate":
            return {"status": text, "code": 1}
        case "prioritize":
            return {"nodeScore": {}, "errorMessage": ""}
        case "jobEnqueueable":
            return {"status": 0}
        case "preemptable" | "reclaimable":
            return {"status": -1, "victims": []}
        case _:
            return {"errorMessage": text}


@pytest.mark.parametrize("verb", VERBS)
async def test_before_the_cluster_is_known_nothing_is_decided(verb: str) -> None:
    async with volcano(cluster(), waits="waiting for pods") as world:
        said = await world.send(verb, recorded("volcano-predicate-1.json"))

    text = "the extender is not ready: waiting for pods"
    assert said == no_answer(verb, text)


@pytest.mark.parametrize("verb", VERBS)
async def test_a_failure_of_ours_never_looks_like_a_node_that_does_not_fit(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with volcano(cluster(pod_update("p"), nodes=("node3",))) as world:
        damage(world.cache)  # whatever looks at it breaks
        bodies = {
            "jobEnqueueable": {"job": {"Tasks": {"uid-p": {}}}},
            "preemptable": {"evictor": task("p"), "evictees": [task("p")]},
            "reclaimable": {"evictor": task("p"), "evictees": [task("p")]},
        }
        plain = {
            "task": task("p", Status.ALLOCATED, "node3"),
            "node": {"Name": "node3"},
            "nodes": [{"Name": "node3"}],
        }
        if verb == "deallocateFunc":
            del world.volcano._cache  # what it looks at is not the index
        body = json.dumps(bodies.get(verb, plain)).encode()
        said = await world.send(verb, body)

    assert said == no_answer(verb, "internal error of the extender; its log says more")
    assert [resource_state.getMessage() for resource_state in caplog.records] == [
        "request failed"
    ]


async def test_pods_that_ask_for_none_of_ours_fit_and_get_nothing() -> None:
    plain = task("x", Status.ALLOCATED, "n1", Pod={"metadata": {"uid": "uid-x"}})
    async with volcano(cluster()) as world:
        fits = await world.ask("predicate", task=plain, node={"Name": "n1"})
        put = await world.ask("allocateFunc", task=plain)
        out = await world.ask("preemptable", evictor=plain, evictees=[])
        scores = await world.ask("prioritize", task=plain, nodes=[{"Name": "n1"}])

        assert world.pods.writes == []
    assert fits == {"status": "", "code": 0}
    assert put == {"errorMessage": ""}
    assert out == {"status": 0, "victims": []}
    assert scores == {"nodeScore": {}, "errorMessage": ""}


async def test_a_recorded_pod_that_no_watch_has_shown_waits_for_it_if_of_a_job() -> (
    None
):
    async with volcano(cluster(nodes=("node3",))) as world:
        said = await world.send("predicate", recorded("volcano-predicate-1.json"))

    text = "the pod is of a job and has not been seen yet"
    assert said == {"status": text, "code": 3}
