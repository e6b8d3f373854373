"""Every row of the table against its rule, said a second time."""

import os
from collections.abc import Iterable
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node import chips
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.reasons import Reason
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product
from tests.machines import mask
from tests.scheduler_core.product_rules import RULES, box
from tests.support.rows import rows

ROWS = [row for row in table.PRODUCTS if row.key in RULES]
SMALL = [row for row in ROWS if row.chip_count <= 8]
LARGE = [row for row in ROWS if row.chip_count > 8]
SIXTEEN = [row for row in LARGE if row.chip_count == 16]
BOX = table.by_key("atlas-a2-box16")
MARKS = {
    "atlas-800-training": ("004-01", "001-02"),
    "atlas-a2-box16": ("001-03",),
    "atlas-a3-16": ("001-04",),
    "atlas-300i-card": ("001-05",),
    "atlas-300i-duo-distributed": ("001-06",),
    "atlas-300i-duo-chip": ("001-07",),
}


def by_row(rows: list[Product]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "row",
        [
            pytest.param(
                row,
                id=row.key,
                marks=[pytest.mark.seed(*MARKS[row.key])] if row.key in MARKS else [],
            )
            for row in rows
        ],
    )


def expected(row: Product, free: int, count: int) -> frozenset[int]:
    rule, counts = RULES[row.key]
    return rule(frozenset(ids_of(free)), count) if count in counts else frozenset()


def check(row: Product, frees: Iterable[int]) -> None:
    """Every count of these free sets is answered as the rule says."""
    for free in frees:
        for count in range(row.chip_count + 2):
            answer = ids_of(chips.choose(row, free, count))
            assert answer == tuple(sorted(expected(row, free, count))), (free, count)


def test_every_row_has_its_rule_said_twice() -> None:
    twins = {f"npu-{key}" for key in RULES}

    assert {row.key for row in table.PRODUCTS} - twins == RULES.keys()


@pytest.mark.seed("002-02")
@by_row(SMALL)
def test_every_free_set_and_count_agrees_with_the_rule(row: Product) -> None:
    check(row, range(row.all_chips + 1))


@pytest.mark.property
@pytest.mark.seed("002-02", "001-01")
@by_row(LARGE)
@given(data=st.data())
def test_free_sets_of_large_servers_agree_with_the_rule(
    row: Product, data: st.DataObject
) -> None:
    free = data.draw(st.integers(0, row.all_chips))
    bits = data.draw(st.integers(0, row.all_chips) | st.just(row.all_chips))
    count = data.draw(st.integers(0, row.chip_count + 1))

    answer = ids_of(chips.choose(row, free & bits, count))

    assert answer == tuple(sorted(expected(row, free & bits, count)))


def classes(row: Product) -> list[int]:
    """One free set of every class that can be served differently.

    As many chips of each group, whichever group it is; of a box also as many pairs of
    matching positions.
    """
    size = row.group_size
    if row.in_pairs:
        return [
            (1 << left) - 1 | ((1 << right) - 1) << shift << size
            for left in range(size + 1)
            for right in range(size + 1)
            for shift in range(size - right + 1)
        ]
    parts = combinations_with_replacement(range(size + 1), len(row.groups))
    return [
        sum((1 << left) - 1 << at * size for at, left in enumerate(lefts))
        for lefts in parts
    ]


@pytest.mark.seed("001-03", "001-04", "001-07")
@by_row(SIXTEEN)
def test_every_class_of_free_sets_of_sixteen_agrees_with_the_rule(row: Product) -> None:
    check(row, classes(row))

    assert {chips.shape(row, free) for free in classes(row)} >= {
        chips.shape(row, free) for free in range(0, 0x10000, 7)
    }


#: the row whose rule tries every set, which is too slow for every free set
BY_CLASS = "atlas-300i-duo-distributed"
#: EXHAUSTIVE=1 takes every free set of sixteen, which is a matter of minutes
STRIDE = 1 if os.environ.get("EXHAUSTIVE") else 509


@pytest.mark.timeout(1200)
@by_row([row for row in SIXTEEN if row.key != BY_CLASS])
def test_free_sets_of_sixteen_agree_with_the_rule(row: Product) -> None:
    check(row, range(0, 0x10000, STRIDE))


@pytest.mark.timeout(1200)
@by_row([row for row in SIXTEEN if row.key == BY_CLASS])
def test_free_sets_of_sixteen_are_served_as_their_class_is(row: Product) -> None:
    """The rule is compared for one of each class; the others leave as much behind."""
    stand_ins = {chips.shape(row, free): free for free in classes(row)}
    for free in range(0, 0x10000, STRIDE):
        twin = stand_ins[chips.shape(row, free)]
        for count in range(18):
            answer = chips.choose(row, free, count)
            other = chips.choose(row, twin, count)
            assert answer & ~free == 0
            assert answer.bit_count() == other.bit_count()
            assert chips.shape(row, free & ~answer) == chips.shape(row, twin & ~other)
            assert not answer or chips.is_legal(row, answer)


@pytest.mark.property
@pytest.mark.seed("001-03")
@given(free=st.integers(0, 0xFFFF), count=st.sampled_from([3, 8, 9, 10, 12, 14, 16]))
def test_pods_of_a_distributed_job_are_split_by_number_not_by_position(
    free: int, count: int
) -> None:
    answer = chips.choose(distributed(BOX), free, count)

    assert set(ids_of(answer)) == box(
        frozenset(ids_of(free)), count if count != 9 else 17, one_pod=False
    )


@pytest.mark.property
@by_row(ROWS)
@given(data=st.data())
def test_choices_are_free_legal_and_never_lost_by_more_free_chips(
    row: Product, data: st.DataObject
) -> None:
    free = data.draw(st.integers(0, row.all_chips))
    more = data.draw(st.integers(0, row.chip_count - 1))
    count = data.draw(st.sampled_from(row.counts))

    answer = chips.choose(row, free, count)

    assert answer & ~free == 0
    assert answer.bit_count() in (0, count)
    if answer:
        assert chips.is_legal(row, answer)
        assert chips.choose(row, free | 1 << more, count)


@pytest.mark.property
@by_row(ROWS)
@given(data=st.data())
def test_a_pod_that_has_chips_gets_the_rest_when_that_is_legal(
    row: Product, data: st.DataObject
) -> None:
    """Taken chips of a legal whole can be completed, and to something legal."""
    free = data.draw(st.integers(0, row.all_chips))
    count = data.draw(st.sampled_from(row.counts))
    whole = chips.choose(row, free, count)
    taken = data.draw(st.integers(0, row.all_chips)) & whole
    rest = count - taken.bit_count()

    answer = chips.complete(row, free & ~taken, taken, rest) if rest else 0

    assert answer & ~free == 0
    assert answer & taken == 0
    if whole and rest:
        assert answer.bit_count() == rest
        assert chips.is_legal(row, answer | taken)


@pytest.mark.property
@by_row(ROWS)
@given(data=st.data())
def test_sets_of_one_shape_are_served_alike(row: Product, data: st.DataObject) -> None:
    """Groups may change places, and chips within them, positions kept in pairs."""
    free = data.draw(st.integers(0, row.all_chips))
    groups = list(row.groups)
    order = data.draw(st.permutations(range(len(groups))))
    size = row.group_size
    parts = [free >> index * size & (1 << size) - 1 for index in order]
    moved = sum(part << index * size for index, part in enumerate(parts))
    count = data.draw(st.sampled_from(row.counts))

    assert chips.shape(row, moved) == chips.shape(row, free)
    assert bool(chips.choose(row, moved, count)) == bool(chips.choose(row, free, count))


@pytest.mark.seed("001-03")
@rows(
    ("free", "one_pod", "expected"),
    {
        "ten, but only two in the other ring": (range(10), (), ()),
        "five and five, not at matching positions": (
            {0, 1, 2, 3, 4, 11, 12, 13, 14, 15},
            (),
            (0, 1, 2, 3, 4, 11, 12, 13, 14, 15),
        ),
        "six pairs: the lowest five": (
            {0, *range(2, 7), 8, *range(10, 15)},
            (0, 2, 3, 4, 5, 8, 10, 11, 12, 13),
            (0, 2, 3, 4, 5, 8, 10, 11, 12, 13),
        ),
    },
)
def test_ten_chips_of_a_box_are_split_evenly(
    free: set[int], one_pod: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert ids_of(chips.choose(BOX, mask(free), 10)) == one_pod
    assert ids_of(chips.choose(distributed(BOX), mask(free), 10)) == expected


@pytest.mark.parametrize(
    ("key", "free", "count", "reason"),
    [
        ("atlas-a3-16", 0b10101, 2, Reason.GROUP_TOO_SMALL),
        ("atlas-a3-16", 0b111, 3, Reason.ILLEGAL_COUNT),
        ("atlas-a2-box16", 0x03FF, 10, Reason.GROUP_TOO_SMALL),
        ("mesh-8", 0x77, 4, Reason.GROUP_TOO_SMALL),
        ("mesh-8", 0x77, 6, None),
        ("atlas-300i-duo-distributed", 0b10101, 3, Reason.GROUP_TOO_SMALL),
        ("atlas-300i-duo-chip", 0b10101, 3, None),
        ("atlas-310p", 0b1, 2, Reason.TOO_FEW_FREE),
        ("atlas-310p", 0b1, 65, Reason.ILLEGAL_COUNT),
    ],
)
def test_why_a_node_of_this_row_cannot_serve(
    key: str, free: int, count: int, reason: Reason | None
) -> None:
    row = table.by_key(key)

    assert chips.find_reason(row, free, row.all_chips, count) is reason
