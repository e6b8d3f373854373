from itertools import combinations

import pytest

from scheduler_core.node import chips, order
from scheduler_core.node.chips import ids_of, mask_of
from scheduler_core.node.reasons import Reason
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import PRODUCTS, Product
from tests.machines import RINGS, mask, rings_of_three, three_rings
from tests.support.rows import rows

ALL_MASKS = range(256)
ALL_COUNTS = range(1, 9)


def chosen(free: set[int], count: int) -> tuple[int, ...]:
    return ids_of(chips.choose(PRODUCT, mask(free), count))


@pytest.mark.seed("004-01")
@rows(
    ("free", "count", "expected"),
    {
        "the last chip of a ring": ({0, 1, 2, 3, 7}, 1, (7,)),
        "one of three before one of two": ({0, 1, 4, 5, 6}, 1, (4,)),
        "one of two before one of four": ({0, 1, 2, 3, 4, 5}, 1, (4,)),
        "the last two of a ring": ({0, 1, 2, 6, 7}, 2, (6, 7)),
        "two of four before three": ({0, 1, 2, 4, 5, 6, 7}, 2, (4, 5)),
        "equal rings: the lower one": ({1, 2, 3, 5, 6, 7}, 2, (1, 2)),
        "four only of a whole ring": ({0, 4, 5, 6, 7}, 4, (4, 5, 6, 7)),
        "eight is the whole node": (set(range(8)), 8, tuple(range(8))),
    },
)
def test_the_tightest_ring_by_the_preference_is_chosen(
    free: set[int], count: int, expected: tuple[int, ...]
) -> None:
    assert chosen(free, count) == expected


@pytest.mark.seed("004-09")
def test_two_chips_are_refused_when_each_ring_has_one() -> None:
    free = mask({0, 4})

    assert chips.choose(PRODUCT, free, 2) == 0
    assert chips.find_reason(PRODUCT, free, 0xFF, 2) is Reason.GROUP_TOO_SMALL


@pytest.mark.seed("001-02")
def test_up_to_four_chips_lie_in_one_ring() -> None:
    for free in ALL_MASKS:
        for count in (1, 2, 4):
            answer = set(ids_of(chips.choose(PRODUCT, free, count)))
            assert any(answer <= set(ring) for ring in RINGS)


@pytest.mark.parametrize("count", [-1, 0, 3, 5, 6, 7, 9, 1000])
def test_a_count_that_the_product_does_not_have_is_never_served(count: int) -> None:
    assert chips.choose(PRODUCT, 0xFF, count) == 0
    assert chips.find_reason(PRODUCT, 0xFF, 0xFF, count) is Reason.ILLEGAL_COUNT


def test_legal_are_exactly_the_sets_of_the_rule() -> None:
    legal = {0xFF} | {
        mask(some)
        for ring in RINGS
        for count in (1, 2, 4)
        for some in combinations(ring, count)
    }

    assert {some for some in range(512) if chips.is_legal(PRODUCT, some)} == legal


def test_there_is_a_reason_exactly_when_there_is_no_choice() -> None:
    for healthy in ALL_MASKS:
        for free in (healthy, healthy & 0x5A, healthy & 0x0F, 0):
            for count in ALL_COUNTS:
                served = chips.choose(PRODUCT, free, count) != 0
                reason = chips.find_reason(PRODUCT, free, healthy, count)
                assert served == (reason is None)


@rows(
    ("free", "healthy", "count", "reason"),
    {
        "count before everything": (0, 0, 3, Reason.ILLEGAL_COUNT),
        "health before occupancy": (0, 0xF0, 8, Reason.CHIP_UNHEALTHY),
        "both rings are hurt": (0x77, 0x77, 4, Reason.CHIP_UNHEALTHY),
        "the other ring is whole": (0x07, 0xF7, 4, Reason.TOO_FEW_FREE),
        "nothing free": (0, 0xFF, 1, Reason.TOO_FEW_FREE),
        "enough, but apart": (0x33, 0xFF, 4, Reason.GROUP_TOO_SMALL),
        "a whole ring": (0x0F, 0xFF, 4, None),
    },
)
def test_the_first_reason_that_is_true_is_given(
    free: int, healthy: int, count: int, reason: Reason | None
) -> None:
    assert chips.find_reason(PRODUCT, free, healthy, count) is reason


def test_nothing_is_completed_by_no_chip() -> None:
    assert chips.complete(PRODUCT, 0xFF, 0b1, 0) == 0
    assert chips.complete(PRODUCT, 0xFF, 0, 0) == 0


def test_masks_and_ids_are_the_same_thing() -> None:
    assert [mask_of(ids_of(some)) for some in ALL_MASKS] == list(ALL_MASKS)
    assert ids_of(0b1000_0101) == (0, 2, 7)
    assert mask_of([7, 0, 2, 2]) == 0b1000_0101


def test_a_negative_id_is_not_a_chip() -> None:
    with pytest.raises(ValueError, match="negative shift count"):
        mask_of([-1])


def test_a_row_with_more_rings_needs_no_other_code() -> None:
    row = three_rings()
    rings = [mask(range(first, first + 4)) for first in (0, 4, 8)]
    whole = {rings[0] | rings[1], rings[0] | rings[2], rings[1] | rings[2], 0xFFF}

    assert {
        some
        for some in range(0x1000)
        if some.bit_count() > 4 and chips.is_legal(row, some)
    } == whole
    assert chips.choose(row, 0xFF7, 8) == rings[1] | rings[2]
    assert chips.choose(row, 0xFFF, 8) == rings[0] | rings[1]
    assert chips.choose(row, 0x0FF, 12) == 0
    assert chips.choose(row, 0x7FF, 8) == rings[0] | rings[1]
    assert chips.choose(row, 0x7F7, 8) == 0
    assert chips.choose(row, 0x331, 1) == 0x001
    assert not chips.is_legal(row, 0x011)
    assert not chips.is_legal(row, 0x111)


def test_the_rest_of_whole_rings_is_found_wherever_the_first_chips_lie() -> None:
    row = three_rings()

    assert chips.complete(row, 0xFFF, 0x800, 7) == 0x70F
    assert chips.complete(row, 0xFF0, 0x800, 7) == 0x7F0
    assert chips.complete(row, 0xFFF, 0x801, 6) == 0x70E
    assert chips.complete(row, 0xFFF, 0x811, 5) == 0


@pytest.mark.parametrize("row", [*PRODUCTS[:16], three_rings(), rings_of_three()])
def test_sets_of_one_shape_have_as_many_chips_in_as_many_groups(row: Product) -> None:
    """In whichever groups; and as many pairs, where the row gives out pairs."""
    masks = [number * 0x9E3779B97F4A7C15 & row.all_chips for number in range(400)]

    shapes: dict[object, set[object]] = {}
    for free in masks:
        parts = sorted((free & group).bit_count() for group in row.groups)
        halves = free & free >> row.group_size & row.groups[0]
        pairs = halves.bit_count() if row.in_pairs else 0
        whole = free.bit_count()
        told = (*parts, pairs) if row.group_preference else whole
        shapes.setdefault(chips.shape(row, free), set()).add(told)

    kinds = [kind for some in shapes.values() for kind in some]
    assert all(len(some) == 1 for some in shapes.values())
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row.key)
def test_each_missing_chip_adds_the_same_to_a_nodes_number(row: Product) -> None:
    free = row.all_chips >> row.chip_count // 2
    for count in (count for count in row.counts if chips.choose(row, free, count)):
        numbers = []
        for missing in range(row.chip_count // 2):
            healthy = row.all_chips >> missing
            key = order.rank(row, healthy, free, count)
            assert key is not None
            numbers.append(order.encode_rank(row, key))

        each = order.missing_chip_cost(row)
        assert numbers == [numbers[0] + each * index for index in range(len(numbers))]
