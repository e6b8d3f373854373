from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.explain import advice
from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.decision import JobPlacement, Placement
from scheduler_core.node.reasons import Reason
from scheduler_core.placement.gang_on_superpods import SuperPods
from scheduler_core.placement.job import COMMON, Terms, place_job
from scheduler_core.placement.job_rules import Job
from scheduler_core.placement.pod import place
from scheduler_core.preemption.relaxations import (
    AddNode,
    Advice,
    ConfirmPod,
    FreeChip,
    HealChip,
    HealNetwork,
    Relaxation,
    ReopenNode,
    Simulation,
)
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from scheduler_core.topology.leaves import Network, Schema
from tests.machines import EIGHT, RINGS, atlas, node_state
from tests.scheduler_core.jobs import job_of
from tests.scheduler_core.leaf_parts import leaf_of
from tests.support.rows import rows

ROWS = [
    table.by_key(key)
    for key in ("atlas-800-training", "atlas-a3-8", "mesh-8", "atlas-a2-8")
]
A3 = table.by_key("atlas-a3-8-superpod")


def node(name: str, row: Product, masks: tuple[int, int, int, bool]) -> NodeState:
    healthy, free, bad_network, barred = masks
    return node_state(
        name,
        row,
        free,
        inventory=0xFF,
        healthy=healthy,
        network_unhealthy=bad_network,
        taken=healthy & ~free | ~healthy & bad_network << 2 & 0xFF,
        barred=Reason.AGENT_SILENT if barred else None,
    )


BYTE = st.integers(0, 0xFF)
#: healthy (most), free (few), of a faulty network (few), out of use
MASKS = st.tuples(
    st.builds(int.__or__, BYTE, BYTE),
    st.builds(int.__and__, BYTE, BYTE),
    st.builds(int.__and__, BYTE, BYTE),
    st.booleans(),
)


def test_chips_are_sorted_by_how_many_of_three_things_they_need() -> None:
    """Chip i needs what the bits of i say."""
    one, two, three = 0b10101010, 0b11001100, 0b11110000

    tiers = advice._tier_by_part_count(0xFF, one, two, three)

    assert [ids_of(tier) for tier in tiers] == [(0,), (1, 2, 4), (3, 5, 6), (7,)]


def all_wishes(nodes: list[NodeState], row: Product) -> Iterator[Relaxation]:
    """Each single thing that could be done with nodes that are not out of use."""
    for one in nodes:
        for chip in EIGHT:
            bit = 1 << chip
            if ~one.free & (one.healthy | one.taken) & bit:
                yield FreeChip(node=one.name, chip=chip)
            if ~one.healthy & bit:
                yield HealChip(node=one.name, chip=chip)
            if row.for_distributed and one.network_unhealthy & bit:
                yield HealNetwork(node=one.name, chip=chip)


def pod_fits(
    row: Product, count: int, simulation: Simulation, *, in_network: bool
) -> bool:
    found = place(
        row,
        count,
        simulation.cluster,
        avoid=simulation.avoid,
        in_network=in_network,
    )
    return isinstance(found, Placement)


def check_parts(
    found: Advice, simulation: Simulation, fits: Callable[[Simulation], bool]
) -> None:
    """All parts together make room, and without any one there is none."""
    assert simulation.passes(found.parts, fits)
    for part in found.parts:
        assert not simulation.passes([p for p in found.parts if p != part], fits)


@pytest.mark.property
@given(
    row=st.sampled_from(ROWS),
    given_masks=st.lists(MASKS, min_size=1, max_size=2),
    count=st.sampled_from((1, 2, 3, 4, 8)),
    avoid=st.sets(st.sampled_from("ab")),
    in_network=st.booleans(),
)
def test_with_all_parts_there_is_a_place_and_without_any_one_there_is_none(
    row: Product,
    given_masks: list[tuple[int, int, int, bool]],
    count: int,
    avoid: set[str],
    *,
    in_network: bool,
) -> None:
    cluster = Cluster(
        node(name, row, masks) for name, masks in zip("ab", given_masks, strict=False)
    )

    fits = partial(pod_fits, row, count, in_network=in_network)
    found = advice.advise_pod(row, count, cluster, avoid=avoid, in_network=in_network)

    simulation = Simulation(row, cluster, None, avoid)
    if found is None:
        assert simulation.passes((), fits) or count not in row.ways
        return
    check_parts(found, simulation, fits)
    assert not any(isinstance(part, AddNode) for part in found.parts)


@pytest.mark.property
@given(masks=st.lists(MASKS, min_size=1, max_size=2), count=st.sampled_from((2, 4)))
def test_no_fewer_parts_would_do(
    masks: list[tuple[int, int, int, bool]], count: int
) -> None:
    row = ATLAS
    nodes = [
        node(name, row, (healthy | 0xE7, free | 0x24, bad, False))
        for name, (healthy, free, bad, _) in zip("ab", masks, strict=False)
    ]
    cluster = Cluster(nodes)

    fits = partial(pod_fits, row, count, in_network=True)
    found = advice.advise_pod(row, count, cluster, in_network=True)

    simulation = Simulation(row, cluster, None, ())
    wishes = list(all_wishes(nodes, distributed(row)))
    fewer = len(found.parts) - 1 if found else -1
    for number in range(min(fewer, 2) + 1):
        for some in combinations(wishes, number):
            assert not simulation.passes(some, fits)


@rows(
    ("nodes", "asked", "expected", "text"),
    {
        "where the fewest chips are missing": (
            [atlas("a", (0, 4, 5)), atlas("b", (0, 1, 2))],
            {"count": 4},
            (FreeChip(node="b", chip=3),),
            "chip 3 of b was free",
        ),
        "of equals where none is to be healed": (
            [atlas("a", RINGS[0][:3], healthy={*EIGHT} - {3}), atlas("b", (0, 1, 2))],
            {"count": 4},
            (FreeChip(node="b", chip=3),),
            "chip 3 of b was free",
        ),
        "a chip to be healed among others": (
            [atlas("a", (0, 1), healthy={*EIGHT} - {2})],
            {"count": 8},
            (
                *(FreeChip(node="a", chip=chip) for chip in range(3, 8)),
                HealChip(node="a", chip=2),
            ),
            "chips 3, 4, 5, 6, 7 of a were free; and chip 2 of a was healthy",
        ),
        "chips before a node that is out of use": (
            [atlas("a", barred=Reason.AGENT_SILENT), atlas("b", ())],
            {"count": 2},
            (FreeChip(node="b", chip=0), FreeChip(node="b", chip=1)),
            "chips 0, 1 of b were free",
        ),
        "a node that is out of use": (
            [atlas("a", barred=Reason.AGENT_SILENT)],
            {"count": 2},
            (ReopenNode(node="a", bar=Reason.AGENT_SILENT),),
            "the agent of a reported again",
        ),
        "no node at all": (
            [],
            {"count": 2},
            (AddNode(node="new-1", row=ATLAS),),
            "there was one more node (Atlas 800 training server)",
        ),
        "a node to be avoided is waited for": (
            [atlas("a")],
            {"count": 2, "avoid": {"a"}},
            (ConfirmPod(node="a"),),
            "the pod that waits on a had its chips",
        ),
        "a chip that is not healthy and that somebody has": (
            [replace(atlas("a", (0, 1, 2), healthy={0, 1, 2}), taken=0x08)],
            {"count": 4},
            (FreeChip(node="a", chip=3), HealChip(node="a", chip=3)),
            "chip 3 of a was free; and chip 3 of a was healthy",
        ),
        "a faulty network, for jobs of several pods": (
            [node("a", ATLAS, (0xFF, 0x0F, 0x01, False))],
            {"count": 4, "in_network": True},
            (HealNetwork(node="a", chip=0),),
            "chip 0 of a had a healthy network",
        ),
        "only the nodes that are asked about": (
            [atlas("a", (0, 1, 2)), atlas("b", ())],
            {"count": 4, "names": ["b"]},
            tuple(FreeChip(node="b", chip=chip) for chip in RINGS[0]),
            "chips 0, 1, 2, 3 of b were free",
        ),
    },
)
def test_the_least_trouble_is_advised(
    nodes: list[NodeState],
    asked: dict[str, Any],
    expected: tuple[Relaxation, ...],
    text: str,
) -> None:
    found = advice.advise_pod(ATLAS, cluster=Cluster(nodes), **asked)

    assert found is not None
    assert set(found.parts) == set(expected)
    assert found.text == f"it would fit if {text}"


def test_nodes_of_another_kind_are_no_help() -> None:
    duo = node("b", table.by_key("atlas-300i-duo-chip"), (0xFF, 0, 0, False))

    found = advice.advise_pod(ATLAS, 8, Cluster([atlas("a", ()), duo]))

    assert found is not None
    assert {part.node for part in found.parts} == {"a"}


def test_a_count_that_no_node_ever_gives_is_beyond_advice() -> None:
    assert advice.advise_pod(ATLAS, 3, Cluster([atlas("a")])) is None


def test_for_a_resource_another_kind_of_server_is_advised_if_only_that_serves() -> None:
    found = advice.advise_pod("huawei.com/Ascend910", 3, Cluster([atlas("a")]))

    a2 = table.by_key("a300t")
    assert found == Advice(parts=(AddNode(node="new-1", row=a2),))


def test_of_many_clauses_only_the_number_is_said() -> None:
    parts = tuple(FreeChip(node=f"node-{each}", chip=0) for each in range(7))

    assert Advice(parts=parts).text.endswith("; and 2 more such things")


def job_fits(given: Job, terms: Terms, simulation: Simulation) -> bool:
    found = place_job(given, simulation.cluster, terms=terms, names=simulation.names)
    return isinstance(found, JobPlacement)


def check(given: Job, cluster: Cluster, terms: Terms = COMMON) -> Advice | None:
    """What is advised, once it has been seen to keep its promise."""
    found = advice.advise_job(given, cluster, terms=terms)

    if found is not None:
        simulation = Simulation(given.row or ATLAS, cluster, None, ())
        fits = partial(job_fits, given, terms)
        assert not simulation.passes((), fits)
        check_parts(found, simulation, fits)
    return found


def test_a_job_of_one_pod_does_not_care_for_the_network_of_chips() -> None:
    cluster = Cluster(
        [
            node("a", ATLAS, (0xFF, 0x7F, 0x03, False)),
            node("b", ATLAS, (0xFF, 0x3F, 0x00, False)),
        ]
    )

    assert check(job_of(ATLAS, 8), cluster) == Advice(
        parts=(FreeChip(node="a", chip=7),)
    )


def test_a_gang_is_told_what_all_its_pods_need() -> None:
    cluster = Cluster([atlas("a"), atlas("b", range(1, 8)), atlas("c", ())])

    found = check(job_of(ATLAS, 8, 8), cluster)

    assert found == Advice(parts=(FreeChip(node="b", chip=0),))


def test_a_gang_is_told_of_as_few_nodes_to_be_added_as_can_be() -> None:
    cluster = Cluster([atlas("a", range(1, 8))])

    found = check(job_of(ATLAS, 8, 8, 8), cluster)

    assert found is not None
    assert set(found.parts) == {
        FreeChip(node="a", chip=0),
        AddNode(node="new-1", row=ATLAS),
        AddNode(node="new-2", row=ATLAS),
    }
    assert found.text == (
        "it would fit if chip 0 of a was free; and there were 2 more nodes "
        "(Atlas 800 training server)"
    )


@rows(
    "given",
    {
        "up to 8 chips must be one pod": job_of(ATLAS, 4, 4),
        "a count that is never given": job_of(ATLAS, 3),
        "no such server": job_of(None),
        "it has a place": job_of(ATLAS, 8),
    },
)
def test_there_is_no_advice_for_a_job_that_is_wrong_itself_or_that_has_a_place(
    given: Job,
) -> None:
    assert check(given, Cluster([atlas("a")])) is None


@pytest.mark.property
@given(frees=st.lists(BYTE, min_size=6, max_size=6), data=st.data())
def test_jobs_under_leaves_and_in_superpods_get_advice_that_keeps_its_promise(
    frees: list[int], data: st.DataObject
) -> None:
    row, in_superpods = data.draw(st.sampled_from([(ATLAS, False), (A3, True)]))
    names = [f"n{each}" for each in range(6)]
    cluster = Cluster(
        node(name, row, (0xFF, 0xFF if free < 0x70 else free, 0, False))
        for name, free in zip(names, frees, strict=True)
    )
    leaves = leaf_of("x", names[:3]), leaf_of("y", names[3:])
    terms = (
        Terms(
            superpods=SuperPods(of_node={n: int(n[1]) // 3 for n in names}, reserve=0)
        )
        if in_superpods
        else Terms(schema=Schema.LARGE_MODEL, network=Network(leaves=leaves))
    )
    given_job = job_of(row, *[8] * data.draw(st.integers(2, 6)))

    found = check(given_job, cluster, terms)

    simulation = Simulation(row, cluster, None, ())
    every_chip = [FreeChip(node=n.name, chip=c) for n in cluster for c in EIGHT]
    fits = partial(job_fits, given_job, terms)
    expected = simulation.passes(every_chip, fits) and not simulation.passes((), fits)
    assert (found is not None) == expected
