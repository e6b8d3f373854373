from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips
from scheduler_core.node.decision import Placement
from scheduler_core.node.reasons import Reason
from scheduler_core.preemption import victims as victim_search
from scheduler_core.preemption.victims import (
    Eviction,
    Fits,
    Limits,
    Preemptor,
    RunningPod,
)
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from tests.machines import EIGHT, atlas, mask, node_state
from tests.support.rows import rows

ROWS = [
    table.by_key(key)
    for key in ("atlas-800-training", "atlas-a3-8", "mesh-8", "flat-8")
]
BUDGETS = {"one": 1, "none": 0}
#: pods that a gang can go on without
SPARE = {"h": 1}
LIMITS = Limits(allowed=BUDGETS, spare=SPARE)
#: of a pod: number of chips, priority, start, gang, budgets
Lived = tuple[int, int, int, str, tuple[str, ...]]
PODS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(-1, 2),
        st.integers(0, 2),
        st.sampled_from(("", "g", "h")),
        st.sampled_from(((), ("one",), ("none",), ("one", "unnamed"))),
    ),
    max_size=6,
)


def laid(pods: list[Lived], node: str) -> list[RunningPod]:
    """Pods on the chips of a node, one after the other, as far as they fit."""
    left = list(EIGHT)
    found = []
    for at, (count, priority, started, gang, budgets) in enumerate(pods):
        own, left = left[:count], left[count:]
        if own:
            found.append(
                runner(
                    f"{node}/{at}",
                    own,
                    priority=priority,
                    started=started,
                    gang=gang,
                    budgets=budgets,
                )
            )
    return found


def state(
    name: str, row: Product, running: list[RunningPod], healthy: int
) -> NodeState:
    taken = sum(pod.chips for pod in running)
    return node_state(name, row, healthy & ~taken, inventory=0xFF, healthy=healthy)


def subsets(pods: list[RunningPod]) -> list[tuple[RunningPod, ...]]:
    sizes = range(len(pods) + 1)
    return list(chain.from_iterable(combinations(pods, size) for size in sizes))


def best_by_brute_force(
    pod: Preemptor, nodes: dict[NodeState, list[RunningPod]], fits: Fits
) -> tuple[str, frozenset[str]] | None:
    """Of every minimal set of pods on every node that frees enough chips, and more."""
    found = []
    for node, running in nodes.items():

        def makes_room(some: tuple[RunningPod, ...], node: NodeState = node) -> bool:
            evicted = sum(each.chips for each in some)
            free = node.free | (evicted & node.healthy)
            has_chips = chips.choose(node.product, free, pod.chips) != 0
            return has_chips and fits(node.name, evicted)

        lower = [each for each in running if each.priority < pod.priority]
        for some in subsets(lower):
            smaller = subsets(list(some))[:-1]
            if makes_room(some) and not any(map(makes_room, smaller)):
                found.append((order(some), node.name, sorted(e.name for e in some)))
    if not found:
        return None
    _, name, victims = min(found)
    return name, frozenset(victims)


def order(victims: tuple[RunningPod, ...]) -> tuple[float, ...]:
    """The order of the rule, word by word."""
    counted = Counter(budget for pod in victims for budget in pod.budgets)
    beyond = sum(max(0, n - BUDGETS.get(name, 0)) for name, n in counted.items())
    gangs = Counter(pod.gang for pod in victims if pod.gang)
    highest = max((pod.priority for pod in victims), default=-1000)
    of_highest = [pod.start_time for pod in victims if pod.priority == highest]
    return (
        beyond,
        highest,
        sum(pod.priority + 2**31 for pod in victims),
        sum(gangs[gang] > SPARE.get(gang, 0) for gang in gangs),
        len(victims),
        -min(of_highest, default=0),
    )


@pytest.mark.property
@given(
    row=st.sampled_from(ROWS),
    pods=st.lists(PODS, min_size=1, max_size=2),
    healthy=st.sampled_from((0xFF, 0xFE, 0x7B)),
    count=st.sampled_from((1, 2, 4, 8)),
    priority=st.integers(0, 3),
    beside=st.sampled_from(((0, 0), (0, 0), (0b11, 1), (0xCC, 2), (0xCC, 3))),
)
def test_the_best_of_all_smallest_sets_of_victims_is_found(
    row: Product,
    pods: list[list[Lived]],
    healthy: int,
    count: int,
    priority: int,
    beside: tuple[int, int],
) -> None:
    heavy, least = beside

    def fits(_node: str, evicted: int) -> bool:
        return (evicted & heavy).bit_count() >= least

    pod = Preemptor(wanted=row, chips=count, priority=priority)
    running = {name: laid(some, name) for name, some in zip("ab", pods, strict=False)}
    nodes = {state(name, row, own, healthy): own for name, own in running.items()}

    found = victim_search.preempt(
        pod, Cluster(nodes), running, limits=LIMITS, fits=fits
    )

    expected = best_by_brute_force(pod, nodes, fits)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        names = sorted(victim.name for victim in found.victims)
        assert (found.node, frozenset(names)) == expected
        assert found.violations == order(found.victims)[0]
        assert chips.is_legal(row, mask(found.place.chips))


def runner(
    name: str,
    own: Iterable[int],
    *,
    priority: int = 0,
    started: float = 0.0,
    **more: Any,
) -> RunningPod:
    return RunningPod(
        name=name, chips=mask(own), priority=priority, start_time=started, **more
    )


def evict(
    *pods: RunningPod,
    chips: int = 4,
    priority: int = 9,
    node: NodeState = atlas("n", ()),  # noqa: B008  # a value
    **more: Any,
) -> Eviction | None:
    """Free chips for a pod on one node, an Atlas 800 with these pods."""
    pod = Preemptor(wanted=ATLAS, chips=chips, priority=priority)
    return victim_search.preempt(pod, Cluster([node]), {"n": pods}, **more)


LEFT, RIGHT = range(4), range(4, 8)


@rows(
    ("stays", "goes"),
    {
        "budgets before priorities": (
            runner("a", LEFT, budgets=("none",)),
            runner("b", RIGHT, priority=5),
        ),
        "priorities before gangs": (
            runner("a", LEFT, priority=2),
            runner("b", RIGHT, priority=1, gang="g"),
        ),
        "gangs before starts": (runner("a", LEFT, gang="g"), runner("b", RIGHT)),
        "who started last goes first": (
            runner("a", LEFT, started=1.0),
            runner("b", RIGHT, started=2.0),
        ),
    },
)
def test_victims_are_compared_in_the_order_of_the_rule(
    stays: RunningPod, goes: RunningPod
) -> None:
    found = evict(stays, goes)

    assert found is not None
    assert found.victims == (goes,)


def test_one_victim_comes_before_two_of_equal_priority() -> None:
    pods = [runner("a", range(2)), runner("b", range(2, 4)), runner("c", RIGHT)]

    found = evict(*pods)

    assert found == Eviction(
        node="n",
        victims=(pods[2],),
        violations=0,
        place=Placement(
            node="n",
            chips=(4, 5, 6, 7),
            reason="the last 4 free of one HCCS ring (0 more free on the node), on a "
            "node with all 8 chips healthy",
        ),
    )
    assert found.text == "n: chips 4, 5, 6, 7 without c"


def test_equal_priority_is_never_evicted() -> None:
    assert evict(runner("a", LEFT, priority=1), priority=1) is None


def test_nobody_goes_where_there_is_room_already() -> None:
    pod = Preemptor(wanted="huawei.com/Ascend910", chips=4, priority=1)
    cluster = Cluster([atlas("m", ()), atlas("n", RIGHT)])

    found = victim_search.preempt(pod, cluster, {"m": [runner("a", range(8))]})

    assert found is not None
    assert (found.node, found.victims, found.text) == ("n", (), "n: chips 4, 5, 6, 7")


def test_only_the_nodes_asked_about_and_none_that_is_out_of_use() -> None:
    pod = Preemptor(wanted=ATLAS, chips=8, priority=1)
    cluster = Cluster([atlas("a", barred=Reason.AGENT_SILENT), atlas("b", ())])
    running = {"b": [runner("b/0", range(8))]}

    assert victim_search.preempt(pod, cluster, running, names=["a", "none"]) is None
    assert victim_search.preempt(pod, cluster, running, names=["b"]) is not None


def test_chips_of_victims_that_are_not_healthy_make_no_room() -> None:
    hurt = atlas("n", (), healthy=range(1, 4))

    assert evict(runner("a", LEFT), priority=1, node=hurt) is None


def test_a_gang_is_broken_only_by_more_than_it_can_spare() -> None:
    pods = [
        runner("a", LEFT, gang="whole", started=2.0),
        runner("b", RIGHT, gang="elastic", started=1.0),
    ]

    found = [evict(*pods, limits=Limits(spare=spare)) for spare in ({}, {"elastic": 1})]

    assert [each and each.victims for each in found] == [(pods[0],), (pods[1],)]


def test_violations_are_the_evictions_beyond_what_a_budget_allows() -> None:
    pods = [runner(f"p{at}", range(at, at + 2), budgets=("b",)) for at in (0, 2, 4, 6)]

    found = evict(*pods, chips=8, limits=Limits(allowed={"b": 1}))

    assert found is not None
    assert (found.victims, found.violations) == (tuple(pods), 3)


def test_a_pod_that_talks_over_the_network_gets_no_chip_whose_network_is_faulty() -> (
    None
):
    cluster = Cluster([replace(atlas("n", ()), network_unhealthy=0x01)])
    pods = {"n": [runner("a", LEFT), runner("b", RIGHT, priority=1)]}

    found = [
        victim_search.preempt(pod, cluster, pods)
        for pod in (
            Preemptor(wanted=ATLAS, chips=4, priority=9),
            Preemptor(wanted=ATLAS, chips=4, priority=9, in_network=True),
        )
    ]

    assert [each and each.place.chips for each in found] == [(*LEFT,), (*RIGHT,)]


FLAT = table.by_key("flat-16")


def flat(pods: list[RunningPod]) -> tuple[Cluster, dict[str, list[RunningPod]]]:
    """A server of 16 chips of which these pods have some, and nothing is free."""
    node = node_state("n", FLAT, 0, inventory=0xFFFF)
    return Cluster([node]), {"n": pods}


def victims(found: Eviction | None) -> list[str]:
    assert found is not None
    return sorted(victim.name for victim in found.victims)


@rows(
    ("pods", "expected"),
    {
        "of 12 pods all sets are tried": (11, ["wide"]),
        "of 13 the most important is spared although it would do alone": (
            12,
            ["p08", "p09", "p10", "p11"],
        ),
    },
)
def test_of_many_pods_not_all_sets_are_tried(pods: int, expected: list[str]) -> None:
    wide = runner("wide", range(12, 16), started=-1.0)
    narrow = [
        runner(f"p{at:02}", range(at, at + 1), started=float(at)) for at in range(pods)
    ]
    pod = Preemptor(wanted=FLAT, chips=4, priority=9)

    found = victim_search.preempt(pod, *flat([*narrow, wide]))

    assert victims(found) == expected


def test_of_many_pods_those_are_spared_first_that_a_budget_protects() -> None:
    budgets = {13: ("unnamed",), 14: ("one",), 15: ("one",)}
    pods = [
        runner(
            f"p{at:02}",
            range(at, at + 1),
            started=float(at),
            budgets=budgets.get(at, ()),
        )
        for at in range(16)
    ]
    pod = Preemptor(wanted=FLAT, chips=3, priority=9)

    found = victim_search.preempt(pod, *flat(pods), limits=Limits(allowed={"one": 1}))

    assert victims(found) == ["p11", "p12", "p14"]


def test_of_many_pods_the_most_important_are_spared_one_by_one() -> None:
    pods = [runner(f"p{at:02}", range(at, at + 1), priority=at % 4) for at in range(16)]
    pods[0] = runner("p00", range(1), budgets=("none",))
    pod = Preemptor(wanted=FLAT, chips=3, priority=9)

    found = victim_search.preempt(pod, *flat(pods))

    assert victims(found) == ["p04", "p08", "p12"]
