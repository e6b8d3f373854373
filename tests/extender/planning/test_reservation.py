"""Nodes that are kept for a job that loses to small ones."""

from dataclasses import replace

import pytest

from extender.cache.cache import Cache
from extender.planning.plan_input import PLAIN
from extender.planning.reservation import choose_nodes
from extender.refusals import RESERVED_NODE
from extender.scheduling import node_filter
from scheduler_core.placement.siblings import Demands
from tests.support.caches import (
    apply,
    choose,
    cluster,
    known_pod,
    node_states,
    only_gang,
    reserved_nodes,
)
from tests.support.clock import NOW_S
from tests.support.extender import NAMES, ServedWorld, world
from tests.support.watched import ALL, RESOURCE, gone, member, pod_update, tenant


async def waiting(w: ServedWorld) -> None:
    """A job that has had no room for more than five minutes."""
    w.add(member("a"), member("b"))
    assert w.filter("a") == []
    w.pass_s(301)
    assert w.filter("a") == []


def busy() -> Cache:
    """Each node has a small pod, and room for more of them."""
    return cluster(tenant("x", "n1", (0,)), tenant("y", "n2", (0, 1)), nodes=NAMES)


def small(w: ServedWorld, name: str, priority: int = 0) -> tuple[str, ...]:
    """The nodes that filter leaves to a pod of one chip."""
    seen = pod_update(name, priority=priority)
    w.learn(seen)
    return tuple(
        node_filter.filter_nodes(w.cache, seen.pod, NAMES, w.time.now_s).fitting
    )


async def test_nodes_are_kept_for_a_job_that_waits_long() -> None:
    async with world(busy()) as w:
        await waiting(w)

        assert small(w, "late") == ()

        result = node_filter.filter_nodes(
            w.cache, known_pod(w.cache, "late"), NAMES, NOW_S
        )
        assert result.counts == (("kept for a large job that has waited long", 2),)
        made = choose(w.cache, known_pod(w.cache, "late"), "n1")
        assert made is RESERVED_NODE


async def test_before_that_small_pods_get_what_is_free() -> None:
    async with world(busy()) as w:
        w.add(member("a"), member("b"))
        w.filter("a")
        w.pass_s(200)
        w.filter("a")

        assert small(w, "s") != ()


async def test_who_has_a_higher_priority_passes_by() -> None:
    async with world(busy()) as w:
        await waiting(w)

        assert small(w, "urgent", priority=7) != ()


async def test_the_job_gets_its_nodes_and_then_they_are_everybodys() -> None:
    async with world(busy()) as w:
        await waiting(w)
        w.learn(*gone("x", "y"))
        w.pass_s(3)

        assert (w.filter("a"), w.filter("b")) == (["n1"], ["n2"])

        w.pass_s(1)
        assert reserved_nodes(w.cache) == set()


@pytest.mark.parametrize("how", ["time", "job"])
async def test_nodes_are_not_kept_for_ever(how: str) -> None:
    async with world(busy()) as w:
        await waiting(w)
        assert reserved_nodes(w.cache) == set(NAMES)

        if how == "job":
            w.learn(*gone(*"ab"))
        w.pass_s(1801 if how == "time" else 1)

        assert reserved_nodes(w.cache) == set()
        if how == "time":  # nor again at once
            w.filter("a")
            assert reserved_nodes(w.cache) == set()


def test_as_few_nodes_as_will_do_and_the_freest_of_them() -> None:
    cache = cluster(
        tenant("x", "n1", range(6)),
        tenant("y", "n2", (0,)),
        tenant("z", "n3", (0, 1)),
        nodes=("n1", "n2", "n3"),
    )
    apply(cache, member("a"), member("b"))
    gang = only_gang(cache)

    found = choose_nodes(cache, gang, ("n1", "n2", "n3"), PLAIN)

    assert found == {"n2", "n3"}
    assert (
        node_states(cache, RESOURCE)["n2"].free == sum(1 << chip for chip in ALL) - 1
    )  # as before


def test_nothing_is_kept_for_a_job_that_would_not_fit_anyway() -> None:
    cache = cluster(tenant("x", "n1", (0,)))
    apply(cache, member("a"), member("b"))
    gang = only_gang(cache)

    assert choose_nodes(cache, gang, ("n1",), PLAIN) == frozenset()


def test_nodes_are_kept_of_those_that_each_kind_is_offered() -> None:
    """n1 is the freest, and of no use to either."""
    cache = cluster(
        tenant("x", "n2", (0,)), tenant("y", "n3", (0,)), nodes=("n1", "n2", "n3")
    )
    kinds = {"a": Demands(kind="one"), "b": Demands(kind="other")}
    for name, demands in kinds.items():
        seen = member(name)
        assert seen.member is not None
        apply(cache, replace(seen, member=replace(seen.member, demands=demands)))
    lists = {"one": frozenset({"n2"}), "other": frozenset({"n3"})}

    found = choose_nodes(cache, only_gang(cache), ("n1", "n2", "n3"), PLAIN, lists)

    assert {"n2", "n3"} <= found
