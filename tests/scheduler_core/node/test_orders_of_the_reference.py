"""The orders over nodes that weigh what is left, against the scores of the reference.

Said a second time as one number, as the reference has it: more points come first. A
smaller key must mean more points, and an equal key as many.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import product

import pytest

from scheduler_core.node import chips, order
from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.order import Rank
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import Product
from tests.machines import mask
from tests.support.rows import rows

BOX = table.by_key("atlas-a2-box16")
#: free chips, chips missing, chips wanted -> points
Score = Callable[[set[int], int, int], int]


def box(free: set[int], missing: int, count: int, *, one_pod: bool) -> int:
    """A missing chip costs as much as a chip left over in the ring; the fuller wins."""
    rings = [[chip for chip in free if chip // 8 == ring] for ring in (0, 1)]
    if count > 8:
        pairs = sum(chip + 8 in free for chip in rings[0])
        over = (pairs if one_pod else min(map(len, rings))) - count // 2
    else:
        over = min(len(ring) - count for ring in rings if len(ring) >= count)
    return 16 * (16 - missing - over) + (16 - len(free))


def mesh(free: set[int], _missing: int, count: int, *, most: int) -> int:
    """Each mesh that could serve as well costs more than all chips left over."""
    meshes = [sum(chip // 4 == index for chip in free) for index in range(most // 4)]
    over = len(free) - count
    if count > 4 and count % 4:
        return -over
    need = max(count // 4, 1)
    able = sum(left >= min(count, 4) for left in meshes)
    return -(most * (able - need) + over)


def of_a_box(one_pod: bool) -> Score:
    return lambda *case: box(*case, one_pod=one_pod)


def of_meshes(most: int) -> Score:
    return lambda *case: mesh(*case, most=most)


def spread(row: Product) -> Iterator[int]:
    """Free sets of many kinds: every mixture of groups, and others far and wide."""
    whole = row.groups[0]
    for parts in product((0, 1, whole >> 1, whole), repeat=len(row.groups)):
        yield sum(part << at * row.group_size for at, part in enumerate(parts))
    for step in range(1, row.all_chips + 1, row.all_chips // 1021 or 1):
        yield step
        yield row.all_chips & ~step


def keys(row: Product, score: Score, count: int) -> set[tuple[Rank, int]]:
    found = set()
    for free in spread(row):
        lost = ids_of(row.all_chips & ~free)
        for missing in range(min(len(lost), 3) + 1):
            healthy = row.all_chips & ~mask(lost[len(lost) - missing :])
            rank = order.rank(row, healthy, free, count)
            if rank is not None:
                found.add((rank, score(set(ids_of(free)), missing, count)))
    return found


def best_first(pairs: Iterable[tuple[Rank, int]]) -> list[tuple[Rank, int]]:
    return sorted(pairs, key=lambda pair: -pair[1])


@pytest.mark.seed("002-02")
@rows(
    ("row", "score"),
    {
        "box, one pod": (BOX, of_a_box(one_pod=True)),
        "box, several": (distributed(BOX), of_a_box(one_pod=False)),
        "8 in meshes": (table.by_key("mesh-8"), of_meshes(8)),
        "16 in meshes": (table.by_key("mesh-16"), of_meshes(16)),
    },
)
def test_a_smaller_key_means_more_points(row: Product, score: Score) -> None:
    for count in row.counts:
        pairs = keys(row, score, count)

        assert len({rank for rank, _ in pairs}) == len(pairs)
        assert len({points for _, points in pairs}) == len(pairs)
        assert best_first(pairs) == sorted(pairs)


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_what_a_missing_chip_adds_does_not_depend_on_what_is_free(row: Product) -> None:
    each = order.missing_chip_cost(row)
    for free in (1, row.all_chips >> 2, 0b0110 & row.all_chips, row.all_chips >> 1):
        for count in row.counts:
            whole = order.rank(row, row.all_chips, free, count)
            hurt = order.rank(row, row.all_chips >> 1, free, count)
            if whole is not None and hurt is not None:
                added = order.encode_rank(row, hurt) - order.encode_rank(row, whole)
                assert added == each


def test_of_nodes_by_chip_the_fuller_comes_first() -> None:
    """Also where the pod leaves a chip free on the last card that it takes of."""
    row = table.by_key("atlas-300i-duo-chip")

    ranks = [
        order.rank(row, row.all_chips, mask(free), 4)
        for free in ((0, 2, 4, 6), (0, 2, 4, 6, 7))
    ]

    assert ranks == [Rank(0, 0, 0), Rank(0, 0, 1)]


def test_what_a_set_can_serve_is_said_by_bits() -> None:
    row = table.ATLAS_800_TRAINING

    assert [
        chips.servable_counts(row, free) for free in (0, 0b0001, 0b0111, 0xF0, 0xFF)
    ] == [
        *(0, 1 << 1, 1 << 1 | 1 << 2),
        *(1 << 1 | 1 << 2 | 1 << 4, 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8),
    ]
