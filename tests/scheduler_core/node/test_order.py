import pytest

from scheduler_core.node import order as node_order
from scheduler_core.node.order import Rank
from scheduler_core.products import table
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.machines import RINGS, atlas_with, mask, three_rings, variant
from tests.support.rows import rows

#: every (healthy, free) that a node can have
STATES = [
    (healthy, free)
    for healthy in range(256)
    for free in range(256)
    if not free & ~healthy
]
#: chips wanted: free chips of the ring that serves, and of the other ring, the best
#: first. From the table "Scenario Classification", groups A to D.
GROUPS = {
    1: (
        *((1, other) for other in (0, 1, 2, 3, 4)),  # A
        *((3, other) for other in (0, 2, 3, 4)),  # B
        *((2, other) for other in (0, 2, 4)),  # C
        *((4, other) for other in (0, 4)),  # D
    ),
    2: (
        *((2, other) for other in (0, 1, 2, 3, 4)),  # A
        *((4, other) for other in (0, 1, 3, 4)),  # B
        *((3, other) for other in (0, 1)),  # C
        (3, 3),  # in no group of the table: last in C
    ),
    4: tuple((4, other) for other in (0, 1, 2, 3, 4)),  # A
    8: ((4, 4),),
}


def position(free: int, count: int) -> int | None:
    """Where a node with these free chips stands in the table; None: nowhere."""
    left, right = [(free & mask(ring)).bit_count() for ring in RINGS]
    for place, pair in enumerate(GROUPS.get(count, ())):
        if pair in {(left, right), (right, left)}:
            return place
    return None


def rank_of(left: int, right: int, count: int, capacity: int = 8) -> Rank | None:
    node = atlas_with("node", left, right, capacity=capacity)
    return node_order.rank(PRODUCT, node.healthy, node.free, count)


@pytest.mark.seed("004-02", "004-05", "004-14")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8])
def test_all_states_of_a_node_are_ordered_as_in_the_table_of_the_seeds(
    count: int,
) -> None:
    expected = {}
    for healthy, free in STATES:
        place = position(free, count)
        if place is not None:
            expected[healthy, free] = (8 - healthy.bit_count(), place)

    ranks = {
        (healthy, free): rank
        for healthy, free in STATES
        if (rank := node_order.rank(PRODUCT, healthy, free, count)) is not None
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
        key = node_order.rank(PRODUCT, 0xFF, free, count)
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


def test_a_product_without_stages_does_not_look_at_health() -> None:
    flat = variant(capacity_staged=False)

    assert node_order.rank(flat, 0x0F, 0x01, 1) == Rank(0, 0, 0)
    assert node_order.rank(PRODUCT, 0x0F, 0x01, 1) == Rank(4, 0, 0)


def test_only_whole_rings_serve_eight() -> None:
    assert node_order.rank(PRODUCT, 0xFF, 0xFF, 8) == Rank(0, 0, 0)
    assert node_order.rank(PRODUCT, 0xFF, mask(range(7)), 8) is None


def test_of_whole_rings_the_fuller_node_comes_first() -> None:
    row = three_rings()

    assert node_order.rank(row, 0xFFF, 0x0FF, 8) == Rank(0, 0, 0)
    assert node_order.rank(row, 0xFFF, 0xFFF, 8) == Rank(0, 0, 4)
    assert node_order.rank(row, 0xFFF, 0x7F7, 8) is None


def order(key: str, count: int, frees: list[int]) -> list[int]:
    """These free sets, the best first; those that cannot serve left out."""
    row = table.by_key(key)
    ranked = [
        (node_order.rank(row, row.all_chips, free, count), free) for free in frees
    ]
    return [free for rank, free in sorted(r for r in ranked if r[0] is not None)]


@pytest.mark.seed("003-02")
@pytest.mark.parametrize(
    ("count", "row"),
    [(6, [8, 8, 8, 8, 8, 0, 1, 2]), (4, [8, 8, 8, 0, 1, 2, 3, 4])],
)
@pytest.mark.parametrize("key", ["atlas-a2-8", "a300t", "flat-8"])
def test_of_flat_servers_the_fewest_chips_left_over_is_best(
    key: str, count: int, row: list[int]
) -> None:
    """The two rows of the matrix that the document gives; 8 is never."""
    frees = [(1 << free) - 1 for free in range(1, 9)]

    ranked = sorted((said, free) for said, free in zip(row, frees, strict=True))

    assert order(key, count, frees) == [free for said, free in ranked if said < 8]


def test_of_a_box_a_missing_chip_weighs_as_much_as_one_left_over() -> None:
    row = table.by_key("atlas-a2-box16")
    all_but_two = row.all_chips & ~0xC000

    exact_but_hurt = node_order.rank(row, all_but_two, 0b111, 3)
    two_left_over = node_order.rank(row, row.all_chips, 0b11111, 3)
    three_left_over = node_order.rank(row, row.all_chips, 0b111111, 3)

    assert [exact_but_hurt, two_left_over, three_left_over] == [
        Rank(0, 2, 3),
        Rank(0, 2, 5),
        Rank(0, 3, 6),
    ]


@rows(
    ("key", "count", "frees"),
    {
        "A3, one chip: a module in use first, then fewer free": (
            "atlas-a3-16",
            1,
            [0b1, 0b111, 0b11111, 0b11, 0b1111],
        ),
        "A3, two chips: the fewest left over": (
            "atlas-a3-16",
            2,
            [0b11, 0b1011, 0b1111, 0b111111],
        ),
        "meshes: fewest that could serve, then fewest left over": (
            "mesh-16",
            2,
            [0b0011, 0b0111, 0b0001_0111, 0b0011_0011, 0b1111_1111],
        ),
        "meshes: fewest whole ones beyond the need": (
            "mesh-16",
            8,
            [0xFF, 0x1FF, 0xFFF, 0xFFFF],
        ),
        "meshes: five, the fewest left": ("mesh-8", 5, [0x37, 0x3F, 0x7F, 0xFF]),
        "300I: 1, 3, 2, 4 on the card": (
            "atlas-300i-card",
            1,
            [0b1, 0b10001, 0b0111, 0b0011, 0b1111],
        ),
        "Duo: a card with one left first": (
            "atlas-300i-duo-chip",
            1,
            [0b1, 0b1101, 0b11, 0b1111],
        ),
        "Duo: one whole card first": (
            "atlas-300i-duo-chip",
            2,
            [0b11, 0b1110, 0b101, 0b10101],
        ),
        "Duo, distributed: a card with one left first": (
            "atlas-300i-duo-distributed",
            3,
            [0b1101, 0b110101, 0b1111, 0b111111],
        ),
    },
)
def test_nodes_of_this_row_are_preferred_in_this_order(
    key: str, count: int, frees: list[int]
) -> None:
    assert order(key, count, frees[::-1]) == frees


def some_states(row: table.Product) -> list[tuple[int, int]]:
    """All (healthy, free) of the training server, some of the larger ones."""
    if row is PRODUCT:
        return STATES
    return [
        (healthy, free & healthy)
        for healthy in (row.all_chips, row.all_chips >> 1)
        for free in (0x1, 0x3, 0x13, 0x37, 0xFF, 0xF5F, 0xFFFF, row.all_chips)
    ]


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_the_number_of_a_rank_keeps_the_order(row: table.Product) -> None:
    keys = {
        key
        for healthy, free in some_states(row)
        for count in row.counts
        if (key := node_order.rank(row, healthy, free, count)) is not None
    }

    numbers = [node_order.encode_rank(row, key) for key in sorted(keys)]

    assert numbers == sorted(set(numbers))
