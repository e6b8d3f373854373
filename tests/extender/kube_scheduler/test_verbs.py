import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from extender.cache.cache import Cache
from extender.metrics import Metrics
from extender.queries.routes import QueryRoutes
from tests.extender.kube_scheduler.test_protocol import recorded
from tests.support import fake_api, objects
from tests.support.caches import apply, bind, cluster, damage
from tests.support.extender import world
from tests.support.servers import asking
from tests.support.watched import pod, pod_update, tenant

#: The nodes of the recorded bodies: one with its best ring, one empty, one full.
NODES = (
    tenant("a", "node1", (0, 1, 2, 4, 5, 6, 7)),
    tenant("c", "node3", range(8)),
)


FILTER = recorded("kube-scheduler-filter-names.json")


def recorded_cluster() -> Cache:
    return cluster(*NODES, nodes=("node1", "node2", "node3"))


class Served:
    def __init__(
        self, session: aiohttp.ClientSession, registry: CollectorRegistry
    ) -> None:
        self._session = session
        self._registry = registry

    async def post(
        self, verb: str, body: bytes | io.BytesIO, headers: dict[str, str] | None = None
    ) -> Any:  # any JSON
        async with self._session.post(f"/{verb}", data=body, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            return await answer.json()

    async def filter(self, pod: dict[str, Any], *names: str) -> Any:
        body = {"Pod": pod, "NodeNames": names}
        return await self.post("filter", json.dumps(body).encode())

    async def bind(self, pod: dict[str, Any], node: str) -> Any:
        body = objects.bind_args(pod, node)
        return await self.post("bind", json.dumps(body).encode())

    async def explain(self, name: str) -> tuple[int, dict[str, Any]]:
        path = f"/v1/explain/default/{name}?nodes=true"
        async with self._session.get(path) as answer:
            return answer.status, await answer.json()

    async def explain_to_a_person(self, name: str) -> str:
        accept = {"Accept": "text/plain"}
        path = f"/v1/explain/default/{name}?nodes=true"
        async with self._session.get(path, headers=accept) as answer:
            return await answer.text()

    def metric(self, line: str) -> str:
        found = generate_latest(self._registry).decode().splitlines()
        return next(row for row in found if row.startswith(line)).rpartition(" ")[2]


@asynccontextmanager
async def served(
    cache: Cache, *, waits: str | None = None
) -> AsyncIterator[tuple[Served, fake_api.Api]]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch_cache(cache)
    async with world(cache, metrics=metrics, waits=waits) as w:
        reading = QueryRoutes(w.sources, lambda: waits, read_pod=w.pod_api.get)
        routes = [*w.verbs.routes(), *reading.routes()]
        async with asking(routes, waits, registry) as session:
            yield Served(session, registry), w.api


async def test_a_recorded_filter_is_answered_with_the_best_class() -> None:
    async with served(recorded_cluster()) as (extender, _):
        answer = await extender.post("filter", FILTER)

    assert answer == {
        "NodeNames": ["node1"],
        "FailedNodes": {},  # the scheduler reads none of them if a node fits
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


async def test_a_recorded_filter_with_nodes_gets_nodes_back() -> None:
    body = recorded("kube-scheduler-filter-nodes.json")
    sent = {
        item["metadata"]["name"]: item for item in json.loads(body)["Nodes"]["items"]
    }

    async with served(recorded_cluster()) as (extender, _):
        answer = await extender.post("filter", body)

    assert answer["Nodes"] == {"items": [sent["node1"]]}
    assert "NodeNames" not in answer


@pytest.mark.parametrize("form", ["names", "nodes"])
async def test_a_recorded_prioritize_is_scored_from_ten(form: str) -> None:
    async with served(recorded_cluster()) as (extender, _):
        answer = await extender.post(
            "prioritize", recorded(f"kube-scheduler-prioritize-{form}.json")
        )

    assert {row["Host"]: row["Score"] for row in answer} == {
        "node1": 10,
        "node2": 9,
        "node3": 0,
    }


async def test_a_recorded_bind_binds() -> None:
    wanted = pod_update("a1", uid="c78e0561-99a0-4e27-8949-ed66fcfd913d")
    cache = recorded_cluster()
    apply(cache, wanted)
    async with served(cache) as (extender, api):
        api.add("a1", wanted.pod.uid)

        answer = await extender.post("bind", recorded("kube-scheduler-bind.json"))

    assert answer == {"Error": ""}
    assert api.node_of("a1") == "node2"


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"Pod": 7}', b"\xff\xfe"])
async def test_a_bad_body_is_answered_with_a_sentence(verb: str, body: bytes) -> None:
    async with served(recorded_cluster()) as (extender, _):
        answer = await extender.post(verb, body)

    assert list(answer) == ["Error"]
    assert "Traceback" not in answer["Error"]
    assert answer["Error"]


async def test_a_bad_prioritize_is_answered_with_no_scores() -> None:
    async with served(recorded_cluster()) as (extender, _):
        assert await extender.post("prioritize", b"{") == []


async def test_nothing_is_decided_before_the_cluster_is_known_whole() -> None:
    async with served(recorded_cluster(), waits="waiting for pods") as (extender, _):
        answer = await extender.post("filter", FILTER)
        bound = await extender.post("bind", recorded("kube-scheduler-bind.json"))

    text = "the extender is not ready: waiting for pods"
    assert answer == bound == {"Error": text}


async def test_a_failure_inside_is_an_answer_and_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = recorded_cluster()
    async with served(cache) as (extender, _):
        damage(cache)  # stands for whatever may break inside
        answer = await extender.post("filter", FILTER)

    assert answer == {"Error": "internal error of the extender; its log says more"}
    assert [resource_state.message for resource_state in caplog.records] == [
        "request failed"
    ]


async def test_a_pod_without_npus_passes_everywhere() -> None:
    async with served(recorded_cluster()) as (extender, _):
        answer = await extender.filter({"metadata": {"name": "x"}}, "n1", "n2")

    assert answer["NodeNames"] == ["n1", "n2"]


async def test_decisions_and_refusals_are_counted() -> None:
    async with served(recorded_cluster()) as (extender, _):
        await extender.post("filter", FILTER)
        await extender.filter(as_json("p", "u"), "node3")
        await extender.filter(as_json("p", "u"), "node3")

        decided = 'ascend_extender_filter_decisions_total{result="%s"}'
        refused = 'ascend_extender_nodes_refused_total{reason="too-few-free"}'
        seconds = 'ascend_extender_request_duration_seconds_count{verb="filter"}'
        assert extender.metric(decided % "fits") == "1.0"
        assert extender.metric(decided % "unschedulable") == "2.0"
        assert extender.metric(refused) == "2.0"
        assert extender.metric(seconds) == "3.0"
        assert extender.metric("ascend_extender_cached_nodes") == "3.0"


async def test_nodes_avoided_and_binds_refused_for_an_unlike_pod_are_counted() -> None:
    cache = cluster(nodes=("n1", "n2"))
    bind(cache, pod("reader", reads_annotation=True), "n1")
    apply(cache, pod_update("p", uid="u"))

    async with served(cache) as (extender, _):
        filtered = await extender.filter(as_json("p", "u"), "n1")
        refused = await extender.bind(as_json("p", "u"), "n1")

        counted = "ascend_extender_conflicts_total"
        by_verb = [
            extender.metric(f'{counted}{{verb="{verb}"}}')
            for verb in ("filter", "bind")
        ]
    assert filtered["NodeNames"] == []
    assert refused["Error"] == filtered["FailedAndUnresolvableNodes"]["n1"]
    assert by_verb == ["1.0", "1.0"]


async def test_a_pending_pod_is_explained_with_counts_and_node_by_node() -> None:
    cache = cluster(tenant("t", "n1", range(8)), nodes=("n1",))
    apply(cache, pod_update("p", uid="u"))
    async with served(cache) as (extender, _):
        await extender.filter(as_json("p", "u"), "n1", "gone")

        status, found = await extender.explain("p")
        text = await extender.explain_to_a_person("p")

    assert status == 200
    assert found.pop("text") == text
    assert found == {
        "pod": "default/p",
        "uid": "u",
        "resource": "huawei.com/Ascend910",
        "count": 1,
        "state": "pending",
        "reasons": [{"nodes": 1, "text": "no free chip", "names": ["n1"]}],
        "nodes": {"n1": "no free chip"},
        "reason": "0/2 nodes are available: 1 no free chip, 1 no such NPU",
        "at": "2027-01-15T08:00:00Z",
        "counts": [
            {"text": "no free chip", "nodes": 1},
            {"text": "no such NPU", "nodes": 1},
        ],
    }
    assert text == (
        "default/p: pending\n"
        "  reason: 0/2 nodes are available: 1 no free chip, 1 no such NPU\n"
        "  at: 2027-01-15T08:00:00Z\n"
        "  now, by reason:\n"
        "    1 node: no free chip (n1)\n"
        "  now, node by node:\n"
        "    n1: no free chip\n"
    )


async def test_a_bound_pod_is_explained_with_node_and_chips() -> None:
    async with served(recorded_cluster()) as (extender, _):
        status, found = await extender.explain("a")

    assert status == 200
    assert (found["state"], found["node"], found["chips"], found["confirmed"]) == (
        "bound",
        "node1",
        [0, 1, 2, 4, 5, 6, 7],
        True,
    )


async def test_an_old_refusal_is_not_told_of_a_bound_pod() -> None:
    cache = cluster(tenant("t", "n1", range(8)))
    async with served(cache) as (extender, _):
        await extender.filter(as_json("p", "uid-p"), "n1")
        apply(cache, tenant("p", "n1", (0,)))  # bound by somebody else

        _, found = await extender.explain("p")

    assert (found["state"], "reason" in found) == ("bound", False)


async def test_an_unknown_pod_is_not_found() -> None:
    async with served(recorded_cluster()) as (extender, _):
        status, found = await extender.explain("nobody")

    assert status == 404
    assert found["state"] == "unknown: no such pod, or it asks for no NPU"


def as_json(name: str, uid: str) -> dict[str, Any]:
    return objects.pod(name, 1, meta={"uid": uid})
