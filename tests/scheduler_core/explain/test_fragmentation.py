from collections.abc import Iterable, Iterator
from itertools import chain, combinations_with_replacement
from itertools import product as every

import pytest

from scheduler_core.explain import fragmentation
from scheduler_core.node import chips
from scheduler_core.node.reasons import Reason
from scheduler_core.products import table
from scheduler_core.products.columns import Way, distributed
from scheduler_core.products.table import Product
from tests.machines import RINGS, atlas, mask
from tests.support.rows import rows

OWN = [row for row in table.PRODUCTS if row.resource != "huawei.com/npu"]
ROWS = [*OWN, *(distributed(row) for row in OWN if distributed(row) is not row)]
#: rows that fill half-used cards before they look for chips that are close
SCATTERED = [row for row in ROWS if row.ways[1] == (Way.EMPTIEST_FIRST,)]


def by_row(some: list[Product]) -> pytest.MarkDecorator:
    return rows(
        "row", {f"{row.key}{'-jobs' * row.for_distributed}": row for row in some}
    )


def free_sets(row: Product) -> Iterator[int]:
    """All of small servers; of large ones one of each kind, on 5 groups or 16 chips."""
    if row.chip_count <= 8:
        yield from range(row.all_chips + 1)
        return
    size = row.group_size
    groups = range(min(len(row.groups), 5, max(16 // size, 1)))
    for lefts in combinations_with_replacement(range(min(size, 16) + 1), len(groups)):
        yield sum((1 << left) - 1 << at * size for at, left in enumerate(lefts))


def legal(row: Product, free: int, count: int) -> Iterator[int]:
    """One set of chips for each way to share a count among the groups."""
    parts = [chips.ids_of(free & group) for group in row.groups]
    for shares in every(*(range(min(len(part), count) + 1) for part in parts)):
        if sum(shares) == count:
            taken = (part[:n] for part, n in zip(parts, shares, strict=True))
            some = mask(chain.from_iterable(taken))
            if chips.is_legal(row, some):
                yield some


def distance(row: Product, chosen: int) -> tuple[int, int]:
    """How far apart chips are: those outside whole groups, then the groups."""
    parts = {group: chosen & group for group in row.groups if chosen & group}
    apart = sum(part.bit_count() for group, part in parts.items() if part != group)
    return apart, len(parts)


@pytest.mark.parametrize(
    ("key", "losses"),
    [
        ("atlas-800-training", (0, 2, 1, 1, 0)),
        ("atlas-800-training-half", (0, 2, 1, 1, 0)),
        ("atlas-300i-card", (0, 3, 2, 1, 0)),
        ("atlas-300i-duo-card", (0, 1, 0)),
        ("atlas-a3-16", (0, 1, 0)),
        ("atlas-a2-box16", (0, 7, 6, 5, 4, 3, 2, 1, 0)),
        ("mesh-8", (0, 3, 2, 1, 0)),
        ("atlas-a2-8", ()),
        ("atlas-300i-chip", ()),
        ("flat-16", ()),
    ],
)
def test_a_group_loses_the_counts_that_it_cannot_serve_although_not_empty(
    key: str, losses: tuple[int, ...]
) -> None:
    assert table.by_key(key).group_loss == losses


@rows(
    ("free", "expected"),
    {
        "an empty node": ((), 0),
        "a whole node": (range(8), 0),
        "a whole ring beside an empty one": (RINGS[1], 1),
        "three and one": ((0, 1, 2, 5), 1 + 2 + 1),
        "four and two": ((0, 1, 2, 3, 4, 6), 0 + 1 + 1),
    },
)
def test_a_node_adds_one_to_its_rings_unless_it_is_empty_or_whole(
    free: Iterable[int], expected: int
) -> None:
    assert fragmentation.measure_node(atlas("a", free)) == expected


def test_a_node_with_a_chip_that_is_not_healthy_is_not_whole() -> None:
    seven = atlas("a", range(7), healthy=range(7))

    assert fragmentation.measure_node(seven) == 1 + 1


def test_where_groups_do_not_matter_only_the_node_counts() -> None:
    flat = table.by_key("flat-8")

    found = [
        fragmentation.measure_chips(flat, free, 0xFF) for free in (0, 1, 0x7F, 0xFF)
    ]

    assert found == [0, 1, 1, 0]


@pytest.mark.seed("001-01", "001-02", "001-03")
@by_row(ROWS)
def test_no_legal_choice_that_is_as_close_leaves_more_fragments(row: Product) -> None:
    def left(free: int, chosen: int) -> int:
        return fragmentation.measure_chips(row, free & ~chosen, row.all_chips)

    for free in free_sets(row):
        for count in row.counts:
            chosen = chips.choose(row, free, count)
            if chosen:
                near = distance(row, chosen)
                others = [
                    left(free, other)
                    for other in legal(row, free, count)
                    if distance(row, other) == near
                ]
                assert left(free, chosen) <= min(others), (free, count)


@pytest.mark.seed("001-01")
@by_row([row for row in ROWS if row not in SCATTERED])
def test_no_legal_choice_is_closer(row: Product) -> None:
    for free in free_sets(row):
        for count in row.counts:
            chosen = chips.choose(row, free, count)
            others = [distance(row, other) for other in legal(row, free, count)]
            assert bool(chosen) == bool(others)
            assert not others or distance(row, chosen) == min(others), (free, count)


@rows(
    ("count", "expected"),
    {
        "every free chip serves one": (1, 0),
        "one of three, and one alone": (2, 1 + 1),
        "no ring of the first, two of the second": (4, 4 + 2),
        "all of them": (8, 10),
        "a count that is never given strands all": (3, 10),
    },
)
def test_stranded_are_the_free_chips_that_pods_of_a_count_cannot_use(
    count: int, expected: int
) -> None:
    nodes = [atlas("a", (0, 1, 2, 5)), atlas("b", (0, 1, 2, 3, 4, 6))]

    assert fragmentation.count_stranded(count, nodes) == expected


def test_all_free_chips_of_a_barred_node_are_stranded() -> None:
    nodes = [atlas("a", barred=Reason.AGENT_SILENT), atlas("b")]

    assert fragmentation.count_stranded(8, nodes) == 8
