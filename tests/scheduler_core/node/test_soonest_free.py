import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.node.chip_mask import ids_of
from scheduler_core.node.soonest_free import find_cheapest, price
from scheduler_core.products import table
from scheduler_core.products.columns import distributed
from scheduler_core.products.table import ATLAS_800_TRAINING, Product
from tests.machines import mask
from tests.scheduler_core.legal_sets import legal_sets
from tests.support.rows import rows

SMALL = [row for row in table.PRODUCTS if row.chip_count <= 8]
BOX = table.by_key("atlas-a2-box16")


def brute_force(row: Product, tiers: tuple[int, ...], count: int) -> int:
    """The cheapest of all legal sets, of equals that of the lowest ids."""
    legal = legal_sets(row, sum(tiers), count)
    return min(legal, key=lambda some: (price(tiers, some), ids_of(some)), default=0)


@pytest.mark.property
@pytest.mark.parametrize("row", [pytest.param(row, id=row.key) for row in SMALL])
@given(data=st.data())
def test_the_cheapest_legal_set_is_found(row: Product, data: st.DataObject) -> None:
    prices = data.draw(
        st.lists(st.integers(0, 3), min_size=row.chip_count, max_size=row.chip_count)
    )
    tiers = tuple(
        mask(chip for chip, its in enumerate(prices) if its == each)
        for each in range(3)
    )
    count = data.draw(st.sampled_from(row.counts))

    assert find_cheapest(row, tiers, count) == brute_force(row, tiers, count)


@rows(
    ("row", "tiers", "count", "expected"),
    {
        "four pairs are free, one is bought": (BOX, (0x0F0F, 0xF0F0), 10, 0x1F1F),
        "each pair has one that is free": (BOX, (0x0FF0, 0xF00F), 10, 0x1F1F),
        "halves at any positions": (distributed(BOX), (0x0FF0, 0xF00F), 10, 0x1FF1),
        "no chip of the other ring": (BOX, (0x0001, 0x00FE), 10, 0),
        "the ring that lacks one": (ATLAS_800_TRAINING, (0x70, 0x8F), 4, 0xF0),
        "a count never given": (ATLAS_800_TRAINING, (0xFF,), 3, 0),
    },
)
def test_what_is_bought_makes_up_what_is_missing(
    row: Product, tiers: tuple[int, ...], count: int, expected: int
) -> None:
    assert find_cheapest(row, tiers, count) == expected
