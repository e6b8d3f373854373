from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster, NodeState
from scheduler_core.node import chips, packing
from scheduler_core.node.decision import JobPlacement, Placement, Rejection
from scheduler_core.placement import gang as gang_placement
from scheduler_core.placement.gang_query import Member, assign_ranks
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING as ATLAS
from scheduler_core.products.table import Product
from tests.machines import EIGHT, atlas, mask, node_state
from tests.scheduler_core.jobs import places_of
from tests.scheduler_core.legal_sets import legal_sets

A3 = table.by_key("atlas-a3-8")
MESH = table.by_key("mesh-8")
FLAT = table.by_key("flat-8")


def members(*sizes: int) -> list[Member]:
    return [Member(name=f"pod-{i}", chips=size) for i, size in enumerate(sizes)]


def node(name: str, row: Product, free: int, *, deaf: int = 0) -> NodeState:
    return node_state(name, row, free, network_unhealthy=deaf)


def can_all_be_placed(row: Product, frees: list[int], sizes: list[int]) -> bool:
    """By trying every legal set of chips of every node for every pod."""
    if not sizes:
        return True
    size, *rest = sorted(sizes, reverse=True)
    seen = set()
    for index, free in enumerate(frees):
        for some in legal_sets(row, free, size):
            left = [*frees[:index], free & ~some, *frees[index + 1 :]]
            if (key := tuple(sorted(left))) not in seen:
                seen.add(key)
                if can_all_be_placed(row, left, rest):
                    return True
    return False


def check(answer: object, gang: list[Member], cluster: Cluster) -> None:
    """Each pod once, free chips, none twice, legal by the row of its node."""
    places = places_of(answer)
    assert [place.pod for place in places] == [member.name for member in gang]
    assert [place.rank for place in places] == list(range(len(gang)))
    left = {state.name: state for state in cluster}
    for place, member in zip(places, gang, strict=True):
        state, got = left[place.node], mask(place.chips)
        row = distributed(state.product) if len(gang) > 1 else state.product
        assert len(place.chips) == member.chips
        assert got & ~(state.free & state.usable(row)) == 0
        assert chips.is_legal(row, got)
        assert place.reason
        left[place.node] = replace(state, free=state.free & ~got)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Product, list[int], list[int]]:
    row = draw(st.sampled_from([ATLAS, A3, MESH, MESH, FLAT]))
    frees = draw(st.lists(st.integers(0, 255), min_size=1, max_size=3))
    sizes = draw(st.lists(st.sampled_from(row.counts), min_size=1, max_size=5))
    return row, frees, sizes


@pytest.mark.seed("004-12")
@pytest.mark.property
@settings(max_examples=150)
@given(worlds())
def test_all_are_placed_exactly_when_they_can_be(
    world: tuple[Product, list[int], list[int]],
) -> None:
    row, frees, sizes = world
    cluster = Cluster(node(f"n{i}", row, free) for i, free in enumerate(frees))
    gang = members(*sizes)

    answer = gang_placement.plan(row, gang, cluster)

    possible = can_all_be_placed(distributed(row), frees, sizes)
    assert isinstance(answer, JobPlacement) == possible
    if isinstance(answer, JobPlacement):
        check(answer, gang, cluster)
    else:
        assert answer.nodes == len(cluster)
        assert " pods fit" in answer.job


@pytest.mark.property
@settings(max_examples=100)
@given(
    row=st.sampled_from([ATLAS, FLAT, A3]),
    frees=st.lists(st.integers(0, 255), min_size=1, max_size=3),
    data=st.data(),
)
def test_where_greedy_is_said_to_be_exact_the_search_finds_no_more(
    row: Product, frees: list[int], data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.sampled_from(row.counts), min_size=1, max_size=6))
    seen = distributed(row)
    if not packing.is_greedy_exact(seen, sizes):
        return
    named = {f"n{i}": (seen, free) for i, free in enumerate(frees)}
    cluster = Cluster(node(name, row, free) for name, (_, free) in named.items())

    answer = gang_placement.plan(row, members(*sizes), cluster)

    packed = packing.pack(named, Counter(sizes))
    if len(sizes) > 1:
        assert isinstance(answer, JobPlacement) == (packed.pods is not None)


@pytest.mark.parametrize(
    ("key", "sizes", "exact"),
    [
        ("atlas-800-training", (1, 2, 4, 8), True),
        ("atlas-800-training", (8,), True),
        ("atlas-a2-8", (3,), True),
        ("atlas-a2-8", (2, 6), True),
        ("atlas-a2-8", (2, 3), False),
        ("atlas-a3-16", (4, 16), True),
        ("atlas-a3-16", (4, 6), False),
        ("mesh-8", (3, 4), False),
        ("mesh-8", (1, 5), False),
        ("atlas-a2-box16", (2, 16), True),
        ("atlas-a2-box16", (5, 10), False),
    ],
)
def test_laying_the_largest_first_is_enough_for_these_sizes(
    key: str, sizes: tuple[int, ...], exact: bool
) -> None:
    row = distributed(table.by_key(key))

    assert packing.is_greedy_exact(row, sizes) is exact


def test_another_arrangement_is_found_where_the_largest_first_fails() -> None:
    """6, 3, 3, 2, 2 on two servers of 8: the 6 must lie with a 2."""
    cluster = Cluster([node("a", FLAT, 0xFF), node("b", FLAT, 0xFF)])
    gang = members(3, 3, 6, 2, 2)

    answer = gang_placement.plan(FLAT, gang, cluster)

    check(answer, gang, cluster)


def test_a_search_that_ends_at_its_bound_says_so() -> None:
    many = 40
    cluster = Cluster(node(f"n{i:02}", FLAT, 0x7F) for i in range(many))
    gang = members(*[5] * (many - 1), *[3] * many, *[2] * many)

    answer = gang_placement.plan(FLAT, gang, cluster)

    assert isinstance(answer, Rejection)
    assert answer.job.endswith("; the search for another way ended at its bound")


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    cluster = Cluster([atlas("a"), atlas("b", {0, 1, 2, 3}), atlas("c")])

    assert gang_placement.plan(ATLAS, members(8, 8, 8), cluster) == Rejection(
        job="2 of 3 pods fit",
        reasons=(
            ("taken by other pods of this job", 2),
            ("without 8 free chips", 1),
        ),
    )
    answer = gang_placement.plan(ATLAS, members(8, 8), cluster)
    assert [(p.pod, p.rank, p.node) for p in places_of(answer)] == [
        ("pod-0", 0, "a"),
        ("pod-1", 1, "c"),
    ]


def test_pods_without_a_rank_take_the_free_numbers_in_their_order() -> None:
    gang = [
        Member(name="a", chips=8),
        Member(name="b", chips=8, rank=0),
        Member(name="c", chips=8),
    ]

    assert [(rank, member.name) for rank, member in assign_ranks(gang)] == [
        (0, "b"),
        (1, "a"),
        (2, "c"),
    ]
    with pytest.raises(ValueError, match="each once"):
        assign_ranks([gang[1], gang[1]._replace(name="d")])


def placed(node_name: str, some: tuple[int, ...]) -> Placement:
    return Placement(node=node_name, chips=some, reason="before")


def test_who_has_a_good_place_keeps_it() -> None:
    cluster = Cluster(
        [
            atlas("a", ()),
            atlas("hurt", (), healthy=range(7)),
            atlas("b"),
            atlas("c"),
        ]
    )
    gang = [
        Member(name="p0", chips=8, place=placed("a", EIGHT)),
        Member(name="p1", chips=8, place=placed("hurt", EIGHT)),
        Member(name="p2", chips=8, place=placed("gone", EIGHT)),
    ]

    answer = gang_placement.plan(ATLAS, gang, cluster)

    assert [(p.node, p.reason == "before") for p in places_of(answer)] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert [p.rank for p in places_of(answer)] == [0, 1, 2]


def test_a_place_with_a_faulty_network_is_not_kept() -> None:
    cluster = Cluster(
        [node("a", ATLAS, 0, deaf=1), node("b", ATLAS, 0), node("c", ATLAS, 0xFF)]
    )
    pod = Member(name="p0", chips=8, place=placed("a", EIGHT))
    other = Member(name="p1", chips=8, place=placed("b", EIGHT))

    alone = gang_placement.plan(ATLAS, [pod], cluster)
    together = gang_placement.plan(ATLAS, [pod, other], cluster)

    assert [p.node for p in places_of(alone)] == ["a"]
    assert [p.node for p in places_of(together)] == ["c", "b"]


def test_only_named_nodes_are_used() -> None:
    cluster = Cluster([atlas("a"), atlas("b"), atlas("c")])

    answer = gang_placement.plan(ATLAS, members(8, 8), cluster, names=["c", "b"])

    assert [p.node for p in places_of(answer)] == ["b", "c"]


def test_the_index_is_as_before() -> None:
    cluster = Cluster([atlas("a"), atlas("b")])
    before = list(cluster)

    gang_placement.plan(ATLAS, members(8, 8), cluster)

    assert list(cluster) == before
    assert cluster.best(ATLAS, 8) == Cluster(before).best(ATLAS, 8)
