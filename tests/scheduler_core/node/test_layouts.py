"""How the chips of a pod lie, beyond the choice of all at once (`test_rows.py`)."""

import pytest

from scheduler_core.node import chips
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.reasons import Reason
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product
from tests.machines import mask
from tests.scheduler_core.legal_sets import legal_sets
from tests.support.rows import rows

BOX = table.by_key("atlas-a2-box16")
DUO = table.by_key("atlas-300i-duo-distributed")
FLAT = table.by_key("flat-8")
BOTH = distributed(BOX)
EVERY = set(range(16))


@pytest.mark.parametrize(
    ("key", "step"),
    [("atlas-800-training", 1), ("atlas-a3-8", 3), ("atlas-800-training-half", 3)],
)
def test_of_all_that_could_complete_the_lowest_ids_are_taken(
    key: str, step: int
) -> None:
    row = table.by_key(key)
    for free in range(0, row.all_chips + 1, 3):
        for taken in range(0, row.all_chips + 1, step):
            for count in (1, 2, 3, 4, 5, 7):
                answer = chips.complete(row, free, taken, count)
                legal = legal_sets(row, free, count, taken)
                if taken:
                    assert answer == next(iter(legal), 0)
                else:
                    assert answer == chips.choose(row, free, count)


@rows(
    ("row", "free", "taken", "count", "expected"),
    {
        "by ids, not as numbers": (DUO, {0, 2, 3, 5}, {4}, 2, {0, 5}),
        "a whole card, but no chip beside it": (DUO, {5}, {4}, 2, ()),
        "pairs that are begun, then the lowest": (
            BOX,
            EVERY,
            {0, 9},
            8,
            {1, 2, 3, 4, 8, 10, 11, 12},
        ),
        "a pair that cannot be had": (BOX, EVERY - {8}, {0}, 9, ()),
        "more pairs begun than wanted": (BOX, EVERY, {0, 1, 2, 3, 4, 13}, 4, ()),
        "fewer pairs than wanted": (BOX, {1, 2, 3, 8, 9, 10, 11}, {0}, 9, ()),
        "the other half of each pair": (
            BOX,
            {8, 9, 10, 11, 12},
            {0, 1, 2, 3, 4},
            5,
            {8, 9, 10, 11, 12},
        ),
        "halves: what each ring lacks": (
            BOTH,
            EVERY,
            {0, 1},
            8,
            {2, 3, 4, 8, 9, 10, 11, 12},
        ),
        "halves: one ring lacks nothing": (
            BOTH,
            EVERY,
            {3, 4, 5, 6, 7},
            5,
            {8, 9, 10, 11, 12},
        ),
        "halves: one ring lacks one": (
            BOTH,
            EVERY,
            {1, 2, 3, 4},
            6,
            {0, 8, 9, 10, 11, 12},
        ),
        "halves: one ring has too many": (BOTH, EVERY, {0, 1, 2, 3, 4, 5}, 4, ()),
        "halves: one has too few": (BOTH, {2, 3, 4, 8, 9, 10, 11}, {0, 1}, 8, ()),
        "flat: the lowest": (FLAT, {1, 4, 5, 6, 7}, {0, 2}, 2, {1, 4}),
        "chips that are not the server's": (FLAT, {0, 1}, {8}, 1, ()),
        "fewer than there are": (FLAT, {2, 3}, {0, 1}, -1, ()),
    },
)
def test_a_pod_that_has_chips_gets_the_rest(
    row: Product,
    free: set[int],
    taken: set[int],
    count: int,
    expected: set[int] | tuple[()],
) -> None:
    answer = chips.complete(row, mask(free), mask(taken), count)

    assert set(ids_of(answer)) == set(expected)


@pytest.mark.parametrize(
    ("some", "one_pod", "several"),
    [
        ({0, 1, 2, 3, 4, 8, 9, 10, 11, 12}, True, True),
        ({0, 1, 2, 3, 4, 9, 10, 11, 12, 13}, False, True),
        ({0, 1, 2, 3, 4, 5, 8, 9, 10, 11}, False, False),
    ],
)
def test_more_than_a_ring_lies_evenly(
    some: set[int], one_pod: bool, several: bool
) -> None:
    assert chips.is_legal(BOX, mask(some)) == one_pod
    assert chips.is_legal(BOTH, mask(some)) == several


def test_cards_with_fewer_free_chips_are_emptied_before_those_with_more() -> None:
    row = table.by_key("atlas-300i-chip")
    free = mask({0, 4, 5, 8, 9, 10, 12, 13, 14, 15})

    answers = [set(ids_of(chips.choose(row, free, count))) for count in (3, 6, 7)]

    assert answers == [
        {0, 4, 5},
        {0, 4, 5, 8, 9, 10},
        {0, 4, 5, 8, 9, 10, 12},
    ]


def test_the_shape_of_a_box_is_chips_of_each_ring_and_pairs() -> None:
    """Rings may change places; positions may, in both rings at once."""
    alike = [({0, 8}, {3, 11}), ({0, 8, 9}, {0, 1, 8}), ({1, 9, 12}, {4, 7, 12})]
    unlike = [({0, 8}, {0, 9}), ({0, 1}, {0, 8}), ({0, 1, 8, 9}, {0, 1, 8, 10})]

    for one, other in alike:
        assert chips.shape(BOX, mask(one)) == chips.shape(BOX, mask(other))
    for one, other in unlike:
        assert chips.shape(BOX, mask(one)) != chips.shape(BOX, mask(other))


def test_chips_whose_network_is_faulty_are_a_reason_of_their_own() -> None:
    row = table.by_key("atlas-a2-8")
    find_reason = chips.find_reason

    assert find_reason(row, 0x7F, 0xFF, 8, usable=0x7F) is Reason.NETWORK_UNHEALTHY
    assert find_reason(row, 0x7F, 0x7F, 8, usable=0x7F) is Reason.CHIP_UNHEALTHY
    assert find_reason(row, 0x0F, 0xFF, 8, usable=0xFF) is Reason.TOO_FEW_FREE
    assert find_reason(row, 0x0F, 0xFF, 8) is Reason.TOO_FEW_FREE
