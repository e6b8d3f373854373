"""Pods of two product lines on the same node, from filter to explanation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from extender.cache import events
from extender.cache.requests import Resources
from extender.metrics import Metrics
from extender.planning.topology import Rules
from extender.shadow import compare
from scheduler_core import __main__ as program
from scheduler_core.placement.job_rules import Profile
from scheduler_core.snapshot import document
from scheduler_core.snapshot.values import cluster_of
from scheduler_core.wire import annotations
from tests.extender.kube_scheduler.test_verbs import served
from tests.extender.queries.test_routes import get, plan
from tests.support import objects
from tests.support.caches import apply, bind, empty, free, lined, planned
from tests.support.extender import sample
from tests.support.watched import (
    BOTH,
    CARD,
    INFERENCE,
    RESOURCE,
    TRAINING,
    Line,
    asking,
    living,
    member,
    node,
)


def sent(name: str, *resources: str, count: int = 1) -> dict[str, Any]:
    """The pod as a scheduler sends it."""
    limits = dict.fromkeys(resources, str(count))
    return objects.pod(name, limits=limits, meta={"uid": f"uid-{name}"})


async def test_pods_of_each_line_are_filtered_bound_and_explained() -> None:
    """The 910 pod takes one ring, which is nothing to the cards, and the other way."""
    cache = lined(living("old", TRAINING, (0,)), names=("n1", "n2"))
    apply(cache, living("full", INFERENCE, (8, 9), where="n2"))
    asked: dict[str, Line] = {"train": TRAINING, "serve": INFERENCE}
    claims: dict[str, dict[str, str]] = {}
    async with served(cache) as (extender, api):
        for name, line in asked.items():
            wanted = asking(name, line)
            apply(cache, events.PodUpdated(pod=wanted))
            api.add(name, wanted.uid)

            pod = sent(name, line.product.resource)
            fitting = await extender.filter(pod, "n1", "n2")
            bound = await extender.bind(pod, "n1")

            assert (fitting["NodeNames"], bound) == (["n1"], {"Error": ""})
            claims[name] = api.bindings[-1]["metadata"]["annotations"]
        _, explained = await extender.explain("serve")

    assert claims["train"][RESOURCE] == "Ascend910-1"
    assert CARD not in claims["train"]
    assert claims["serve"][CARD] == "Ascend310P-8"
    assert RESOURCE not in claims["serve"]
    assert all(annotations.PREDICATE_TIME in claim for claim in claims.values())
    assert (explained["resource"], explained["chips"]) == (CARD, [8])


async def test_why_not_is_said_of_the_line_that_is_asked_for() -> None:
    cache = lined(living("a", INFERENCE, (8, 9)))
    apply(cache, node("n2", TRAINING))
    async with served(cache) as (extender, _):
        answer = await extender.filter(sent("p", CARD), "n1", "n2")

    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"n1": "no free chip"}
    assert answer["FailedAndUnresolvableNodes"] == {"n2": "no such NPU"}


async def test_a_pod_that_asks_for_both_is_told_so_on_every_node() -> None:
    async with served(lined()) as (extender, _):
        answer = await extender.filter(sent("p", RESOURCE, CARD), "n1")

    text = f"a pod gets NPUs of one kind: ask for {RESOURCE} or {CARD}"
    assert answer["FailedAndUnresolvableNodes"] == {"n1": text}


async def test_a_pending_pod_is_explained_by_each_node_once() -> None:
    cache = lined(living("a", INFERENCE, (8, 9)), names=("n1", "n2"))
    apply(cache, events.PodUpdated(pod=asking("p", INFERENCE, 2)))
    async with served(cache) as (extender, _):
        _, explained = await extender.explain("p")

    assert explained["nodes"] == {"n1": "without 2 free chips", "n2": "fits"}


def test_jobs_of_two_lines_share_the_room_of_a_node() -> None:
    """CPU for three pods, one of which runs on the other line's chips."""
    allocatable_resources = Resources(3_000, 1 << 40, 110)
    ask = Resources(1_000, 1 << 20)
    cache = empty()
    apply(cache, *lined_with(allocatable_resources, "n1", "n2"))
    apply(cache, replace(living("card", INFERENCE, (8,)), ask=ask))
    apply(cache, events.PodUpdated(pod=asking("next", INFERENCE), ask=ask))
    bind(cache, asking("next", INFERENCE), "n1")
    apply(cache, *(member(name, size=2, count=2, ask=ask) for name in "ab"))

    rules = Rules(profile=Profile.PER_POD)
    found = planned(cache, ("n1",), rules)
    apply(cache, *lined_with(Resources(4_000, 1 << 40, 110), "n1"))
    roomier = planned(cache, ("n1",), rules)

    assert found == "1 of 2 pods fit"
    assert isinstance(roomier, dict)
    assert free(cache, "n1", CARD) == ()


def lined_with(allocatable_resources: Resources, *names: str) -> list[events.Change]:
    told = lined(names=names).nodes
    found: list[events.Change] = []
    for name in names:
        texts = told[name].report_texts
        found += [
            replace(node(name, *BOTH), allocatable_resources=allocatable_resources),
            events.ReportUpdated(node=name, device_info=texts[0], affinity=texts[1]),
        ]
    return found


def test_a_job_whose_pods_ask_for_two_kinds_is_refused_with_that() -> None:
    cache = lined()
    one, other = member("a"), member("b")
    apply(cache, one, replace(other, pod=asking("b", INFERENCE)))

    assert planned(cache, ("n1",), Rules()) == (
        f"a job gets NPUs of one kind, its pods ask for {CARD} and {RESOURCE}"
    )


def test_what_another_scheduler_did_is_compared_line_by_line() -> None:
    cache = lined(living("a", TRAINING, (0,)))
    theirs = [
        asking("b", TRAINING, node="n1", ids=(1,)),
        asking("c", INFERENCE, node="n1", ids=(8,)),
        asking("d", INFERENCE, node="n1", ids=(0,)),
    ]

    assert [compare.compare(cache, pod)[0] for pod in theirs] == [
        compare.Rule.AGREES,
        compare.Rule.AGREES,
        compare.Rule.CHIPS_TAKEN,
    ]


async def test_a_snapshot_has_both_lines_and_is_read_by_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = lined(living("a", TRAINING, (0, 1)), living("b", INFERENCE, (8,)))
    apply(cache, events.PodUpdated(pod=asking("promised", INFERENCE)))
    bind(cache, asking("promised", INFERENCE), "n1")

    status, text = await get(cache, "/v1/snapshot")
    again = await get(cache, "/v1/snapshot")

    assert (status, again) == (200, (200, text))
    found = document.parse(text)
    assert list(cluster_of(found)) == list(cache.index)
    assert [(pod.name, pod.resource, pod.chips) for pod in found.pods] == [
        ("default/a", RESOURCE, (0, 1)),
        ("default/b", CARD, (8,)),
        ("default/promised", CARD, (9,)),
    ]
    file, job = tmp_path / "cluster.json", tmp_path / "job.json"
    file.write_text(text)
    asked = {"version": 1, "resource": CARD, "chips": 1, "priority": 9}
    job.write_text(json.dumps(asked))
    assert program.main(["place", str(file), str(job), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["reasons"] == [{"nodes": 1, "text": "no free chip"}]
    assert said["eviction"]["victims"] == ["default/b"]
    assert program.main(["explain", str(file), str(job), "n1"]) == 1
    assert capsys.readouterr().out.startswith("n1 cannot serve\n  ok node    server ")


async def test_a_snapshot_of_one_line_says_no_more_than_before() -> None:
    cache = empty()
    apply(cache, node("n1", TRAINING), living("a", TRAINING, (0,)))

    _, text = await get(cache, "/v1/snapshot")

    assert "resource" not in text


async def test_what_if_is_answered_for_each_line() -> None:
    cache = lined(living("a", TRAINING, range(8)), living("b", INFERENCE, (8,)))

    found = [
        await plan(cache, {"version": 1, "job": {"resource": of, "chips": 1}})
        for of in (RESOURCE, CARD)
    ]

    assert [(said["fits"], said.get("chips")) for _, said in found] == [
        (False, None),
        (True, [9]),
    ]


def test_pools_and_nodes_are_counted_by_what_they_are() -> None:
    cache, registry = lined(living("a", INFERENCE, (8,))), CollectorRegistry()
    Metrics(registry).watch_cache(cache)

    assert sample(registry, "cached_nodes") == 1
    assert sample(registry, "free_chips", product="atlas-800-training") == 8
    assert sample(registry, "free_chips", product="atlas-310p") == 1
