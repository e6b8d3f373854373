"""Nodes without an agent: what the Node itself says is all that is known."""

from dataclasses import replace

import pytest

from extender.cache import decode, events
from extender.cache.cache import Cache
from extender.planning.topology import NetworkTopology, Rules
from extender.scheduling import reserve
from kube import objects
from scheduler_core.node.reasons import Reason
from scheduler_core.products.lookup import Traits
from scheduler_core.wire import annotations
from tests.support.caches import (
    add_node,
    apply,
    barred,
    bind,
    choose,
    empty,
    free,
    only_gang,
    planned,
)
from tests.support.clock import NOW_S
from tests.support.watched import A3, member, node, pod, report, tenant

DAY_S = 86_400.0


def bare(*names: str) -> Cache:
    cache = empty(bare_nodes=True)
    for name in names:
        apply(cache, replace(node(name), inventory=""))
    return cache


def test_its_chips_are_those_of_its_product() -> None:
    cache = bare("n1")
    apply(cache, tenant("a", "n1", (0, 1)))

    assert barred(cache) is None
    assert free(cache, "n1") == (2, 3, 4, 5, 6, 7)


def test_it_counts_however_long_nobody_reports() -> None:
    cache = bare("n1")
    apply(cache, events.Ticked(), now_s=NOW_S + DAY_S)

    assert barred(cache) is None


def test_unless_so_asked_a_node_without_an_agent_gets_nothing() -> None:
    cache = empty()
    apply(cache, node("n1"))

    assert barred(cache) is Reason.AGENT_SILENT


@pytest.mark.parametrize("offered", [0, 7])
def test_where_not_all_chips_are_offered_nobody_knows_which(offered: int) -> None:
    cache = bare()
    apply(cache, replace(node("n1", allocatable=offered), inventory=""))

    assert barred(cache) is (
        Reason.BAD_NODE_REPORT if offered else Reason.NO_ALLOCATABLE
    )


def test_an_agent_that_comes_is_believed() -> None:
    cache = bare("n1")

    apply(cache, node("n1"), report("n1", held=(0,)))

    assert free(cache, "n1") == (1, 2, 3, 4, 5, 6, 7)


def test_unlike_pods_need_not_wait_for_one_another() -> None:
    cache = bare("n1")
    bind(cache, pod("a", reads_annotation=True), "n1")

    other = pod("b")
    made = choose(cache, other, "n1")

    assert isinstance(made, reserve.Choice)
    assert annotations.CONFIGURATION not in made.annotations


def test_its_superpod_stands_on_the_node() -> None:
    cache = empty(bare_nodes=True)
    for name, superpod in (("n1", 0), ("n2", 1), ("n3", 1)):
        add_node(cache, name, A3)
        seen_node = events.NodeUpdated(
            name=name,
            offers=(
                events.Offer(
                    resource=A3.resource, product=A3, allocatable=A3.chip_count
                ),
            ),
            superpod=superpod,
        )
        apply(cache, events.ReportUpdated(node=name), seen_node)
    traits = Traits(annotations={"sp-block": "32"})
    apply(cache, *(member(name, count=16, traits=traits) for name in "ab"))

    found = planned(cache, ("n1", "n2", "n3"), Rules(superpod_reserve=0))

    assert isinstance(found, dict)
    assert {where for where, _ in found.values()} == {"n2", "n3"}
    assert NetworkTopology(cache, Rules()).snapshot(only_gang(cache)).superpods


@pytest.mark.parametrize(
    ("text", "superpod"), [("7", 7), ("-2", -1), ("", -1), ("x", -1), ("9" * 99, -1)]
)
def test_a_superpod_is_a_number(text: str, superpod: int) -> None:
    meta = objects.Meta(name="n1", annotations={"superPodID": text})

    assert decode.node_change(objects.Node(metadata=meta)).superpod == superpod
