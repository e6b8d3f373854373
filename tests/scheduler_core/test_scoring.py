import pytest

from scheduler_core import scoring
from scheduler_core.chips import ids_of
from scheduler_core.products import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.scoring import Rank
from tests.machines import atlas_with, mask, three_rings, variant
from tests.scheduler_core import seed_rule

#: every (healthy, free) that a node can have
STATES = [
    (healthy, free)
    for healthy in range(256)
    for free in range(256)
    if not free & ~healthy
]


def rank_of(left: int, right: int, count: int, capacity: int = 8) -> Rank | None:
    node = atlas_with("node", left, right, capacity=capacity)
    return scoring.rank(PRODUCT, node.healthy, node.free, count)


@pytest.mark.seed("004-02")
@pytest.mark.seed("004-05")
@pytest.mark.seed("004-14")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_all_states_of_a_node_are_ordered_as_in_the_table_of_the_seeds(
    count: int,
) -> None:
    expected = {}
    for healthy, free in STATES:
        place = seed_rule.position(frozenset(ids_of(free)), count)
        if place is not None:
            expected[healthy, free] = (8 - healthy.bit_count(), place)

    ranks = {
        (healthy, free): rank
        for healthy, free in STATES
        if (rank := scoring.rank(PRODUCT, healthy, free, count)) is not None
    }

    assert ranks.keys() == expected.keys()
    pairs = {(expected[state], ranks[state]) for state in ranks}
    places = [place for place, _ in sorted(pairs)]
    by_rank = [rank for _, rank in sorted(pairs)]
    assert places == sorted(set(places))
    assert by_rank == sorted(set(by_rank))


@pytest.mark.seed("004-02")
def test_the_worst_node_of_capacity_8_comes_before_the_best_of_capacity_7() -> None:
    worst_of_8 = rank_of(4, 4, 1, capacity=8)
    best_of_7 = rank_of(1, 0, 1, capacity=7)

    assert worst_of_8 is not None
    assert best_of_7 is not None
    assert worst_of_8 < best_of_7


@pytest.mark.seed("004-03")
def test_within_a_group_a_node_in_use_comes_before_an_emptier_one() -> None:
    ranks = [rank_of(1, other, 1) for other in (0, 1, 2, 3, 4)]

    assert ranks == [Rank(0, 0, other) for other in (0, 1, 2, 3, 4)]


@pytest.mark.seed("004-04")
@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_group_and_other_ring_leave_nothing_for_an_even_number_to_decide(
    count: int,
) -> None:
    """Two nodes of equal rank have the same chips free in their rings."""
    rings_of: dict[Rank, set[tuple[int, ...]]] = {}
    for free in range(256):
        key = scoring.rank(PRODUCT, 0xFF, free, count)
        if key is not None:
            rings = sorted((free & ring).bit_count() for ring in PRODUCT.groups)
            rings_of.setdefault(key, set()).add(tuple(rings))

    assert {key: len(rings) for key, rings in rings_of.items()} == dict.fromkeys(
        rings_of, 1
    )


@pytest.mark.seed("003-01")
def test_a_node_with_one_chip_left_beats_one_with_rings_of_two_and_three() -> None:
    node_a, node_b = rank_of(1, 0, 1), rank_of(2, 3, 1)

    assert (node_a, node_b) == (Rank(0, 0, 0), Rank(0, 1, 2))


def test_three_and_three_is_the_last_of_group_c_for_two_chips() -> None:
    assert rank_of(3, 3, 2) == Rank(0, 2, 3)
    assert max(rank_of(3, other, 2) or Rank(0, 0, 0) for other in (0, 1, 3)) == Rank(
        0, 2, 3
    )


def test_the_number_of_a_rank_keeps_the_order_and_leads_back() -> None:
    keys = sorted(
        {
            key
            for healthy, free in STATES
            for count in PRODUCT.counts
            if (key := scoring.rank(PRODUCT, healthy, free, count)) is not None
        }
    )

    numbers = [scoring.number(PRODUCT, key) for key in keys]

    assert numbers == sorted(set(numbers))
    assert [scoring.key_of(PRODUCT, number) for number in numbers] == keys


def test_a_product_without_stages_does_not_look_at_health() -> None:
    flat = variant(capacity_staged=False)

    assert scoring.rank(flat, 0x0F, 0x01, 1) == Rank(0, 0, 0)
    assert scoring.rank(PRODUCT, 0x0F, 0x01, 1) == Rank(4, 0, 0)


def test_only_whole_rings_serve_eight() -> None:
    assert scoring.rank(PRODUCT, 0xFF, 0xFF, 8) == Rank(0, 0, 0)
    assert scoring.rank(PRODUCT, 0xFF, mask(range(7)), 8) is None


def test_of_whole_rings_the_fuller_node_comes_first() -> None:
    row = three_rings()

    assert scoring.rank(row, 0xFFF, 0x0FF, 8) == Rank(0, 0, 0)
    assert scoring.rank(row, 0xFFF, 0xFFF, 8) == Rank(0, 0, 4)
    assert scoring.rank(row, 0xFFF, 0x7F7, 8) is None
