"""What is kept up to date of leaves and SuperPoDs equals what is counted anew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.index.counts import Census, Sites, nth_bit, set_bits
from scheduler_core.placement.gang_query import NodeQuery
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from tests.machines import atlas
from tests.scheduler_core.indexed import Model, follow, node_states

MODULE, BOX = table.by_key("atlas-a2-8"), table.by_key("atlas-a2-box16")
OWN = (ATLAS, MODULE, BOX)
WANTED = (*OWN, table.by_key("flat-8"), ATLAS.resource)
NAMES = [f"node-{index}" for index in range(8)]
#: two sites of unlike width, with a gap, a node named twice and one that lies nowhere
GROUPS = (
    ("node-0", "node-1", "", "node-2"),
    ("node-3", "node-4", "node-0"),
    (),
    ("node-5",),
)
OTHERS = (tuple(NAMES[:4]), tuple(NAMES[4:]))


#: sites, resource or row, chips, whether the job has several pods
Question = tuple[tuple[tuple[str, ...], ...], Product | str, int, bool]
states = node_states(OWN, st.sampled_from(NAMES))
questions = st.tuples(
    st.sampled_from([GROUPS, OTHERS]),
    st.sampled_from(WANTED),
    st.sampled_from([1, 2, 8, 12]),
    st.booleans(),
)


def counted(
    cluster: Cluster, question: Question
) -> tuple[list[int], list[int], list[int]]:
    groups, wanted, count, in_network = question
    census = cluster.census(groups, wanted, count, in_network=in_network)
    return census.slots, census.levels, census.columns


@pytest.mark.property
@given(
    st.lists(st.one_of(states, st.sampled_from(NAMES), questions), max_size=30),
    questions,
)
def test_a_census_that_was_followed_equals_one_made_anew(
    changes: list[NodeState | str | Question],
    question: Question,
) -> None:
    """Whenever the questions came, also of rows that no node had yet."""
    cluster, model, asked = Cluster(), Model(), [question]
    for change in changes:
        if isinstance(change, NodeState | str):
            follow(cluster, model, change)
        else:
            counted(cluster, change)
            asked.append(change)

    for each in asked:
        assert counted(cluster, each) == counted(Cluster(model.values()), each)


@pytest.mark.property
@given(st.lists(states, max_size=12), questions)
def test_a_slot_is_a_node_that_can_serve(
    some: list[NodeState],
    question: Question,
) -> None:
    cluster = Cluster(some)
    groups, wanted, count, in_network = question
    able = {name for _, _, name in cluster.ranked(wanted, count, in_network=in_network)}

    slots, _, _ = counted(cluster, question)

    assert [
        [site[position] for position in set_bits(mask)]
        for site, mask in zip(groups, slots, strict=True)
    ] == [
        [
            name
            for position, name in enumerate(site)
            if name in able and (name, number, position) != ("node-0", 1, 2)
        ]
        for number, site in enumerate(groups)
    ]


def test_sites_stand_by_their_slots_and_positions_by_their_sites() -> None:
    census = Census(Sites(GROUPS), 8, ["node-0", "node-2", "node-3", "node-7"])

    assert census.slots == [0b1001, 0b1, 0, 0]
    assert census.levels == [0b1100, 0b0010, 0b0001, 0, 0]
    assert census.columns == [0b0011, 0, 0, 0b0001]
    assert census.total == 3


def test_so_many_questions_are_followed_and_the_first_of_them_is_made_again() -> None:
    cluster = Cluster([atlas("node-0")])
    first = cluster.census(GROUPS, ATLAS, 1)
    for count in range(2, 17):
        cluster.census(GROUPS, ATLAS, count)
    kept = cluster.census(GROUPS, ATLAS, 1) is first

    cluster.census(GROUPS, ATLAS, 17)
    cluster.put(replace(atlas("node-0"), free=0))
    again = cluster.census(GROUPS, ATLAS, 1)

    assert (kept, again is first) == (True, False)
    assert (again.total, first.total) == (0, 1)


def test_sites_that_nobody_asks_for_any_more_are_forgotten() -> None:
    cluster = Cluster([atlas("node-0")])
    first = cluster.census(GROUPS, ATLAS, 1)
    for number in range(4):
        cluster.census(((f"other-{number}",),), ATLAS, 1)

    assert cluster.census(GROUPS, ATLAS, 1) is not first


@pytest.mark.property
@given(st.sets(st.integers(0, 200), min_size=1))
def test_members_of_a_mask_are_found_one_by_one_and_by_their_number(
    members: set[int],
) -> None:
    mask = sum(1 << member for member in members)

    assert list(set_bits(mask)) == sorted(members)
    assert [nth_bit(mask, index) for index in range(len(members))] == sorted(members)


@given(st.lists(states, max_size=8), st.sets(st.sampled_from(NAMES)), questions)
def test_of_the_nodes_that_are_offered_those_count_that_can(
    there: list[NodeState],
    offered: set[str],
    question: Question,
) -> None:
    groups, wanted, count, in_network = question
    cluster, names = Cluster(there), tuple(offered)
    ranked = cluster.ranked(wanted, count, names=names, in_network=in_network)
    expected = Census(Sites(groups), count, [name for _, _, name in ranked])

    found = NodeQuery(
        wanted=wanted, cluster=cluster, names=names, in_network=in_network
    ).census(groups, count)

    assert (found.slots, found.levels, found.columns) == (
        expected.slots,
        expected.levels,
        expected.columns,
    )
