"""Parts that were cut beforehand: their rows, and which part a pod gets."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.index.cluster import Cluster
from scheduler_core.node.decision import Placement, Rejection
from scheduler_core.parts.templates import CHIPS
from scheduler_core.placement.pod import place
from scheduler_core.products import lookup, table
from scheduler_core.products.columns import Product
from tests.machines import mask, node_state

QUARTER = "huawei.com/Ascend910-4c"


def row_of(resource: str) -> Product:
    row = lookup.find_virtual_row(resource)
    assert row is not None
    return row


def test_each_kind_that_can_be_cut_has_a_row_of_its_own() -> None:
    of_310p = {t.kind for chip in CHIPS if "310P" in chip.key for t in chip.asked}
    of_910b = {t.kind for chip in CHIPS if "310P" not in chip.key for t in chip.asked}
    of_910a = {"2c", "4c", "8c", "16c"}
    wanted = [f"huawei.com/Ascend310P-{kind}" for kind in of_310p]
    wanted += [f"huawei.com/Ascend910-{kind}" for kind in of_910b | of_910a]

    rows = [row_of(resource) for resource in lookup.STATIC_PARTS]

    assert sorted(lookup.STATIC_PARTS) == sorted(wanted)
    assert [row.resource for row in rows] == list(lookup.STATIC_PARTS)
    keys = {row.key for row in rows} | {row.key for row in table.PRODUCTS}
    assert len(keys) == len(rows) + len(table.PRODUCTS)


@pytest.mark.parametrize("resource", lookup.STATIC_PARTS)
def test_a_chip_keeps_16_ids_and_a_row_has_the_largest_server(resource: str) -> None:
    row, line = row_of(resource), resource.rpartition("-")[0]
    chips = [other.chip_count for other in table.PRODUCTS if other.resource == line]

    assert (len(row.groups), row.group_size) == (max(chips), 16)
    assert row.counts == (1,)


#: {node: {chip: slots of its parts that are free}}
Free = Mapping[str, Mapping[int, frozenset[int]]]

_SLOTS = st.frozensets(st.integers(0, 6), max_size=5)
_NODES = st.dictionaries(
    st.sampled_from("abcdef"),
    st.dictionaries(st.integers(0, 5), _SLOTS, max_size=4),
    max_size=5,
)


def first_of(nodes: Free) -> tuple[str, int, int] | None:
    """Node, chip and slot of the best part, by trying all of them."""
    every = [
        (len(slots), sum(map(len, chips.values())) - len(slots), name, chip, slot)
        for name, chips in nodes.items()
        for chip, slots in chips.items()
        for slot in slots
    ]
    return min(every)[2:] if every else None


@pytest.mark.seed("002-01")
@pytest.mark.property
@given(_NODES)
def test_a_part_comes_from_the_chip_with_the_fewest_left(nodes: Free) -> None:
    row = row_of(QUARTER)
    cluster = Cluster(
        node_state(
            name,
            row,
            mask(16 * chip + slot for chip, slots in chips.items() for slot in slots),
            inventory=mask(16 * chip + slot for chip in chips for slot in range(7)),
        )
        for name, chips in nodes.items()
    )

    answer = place(QUARTER, 1, cluster)

    wanted = first_of(nodes)
    if wanted is None:
        assert isinstance(answer, Rejection)
        return
    node, chip, slot = wanted
    assert isinstance(answer, Placement)
    assert (answer.node, answer.chips) == (node, (16 * chip + slot,))


def test_sentences_speak_of_parts() -> None:
    row = row_of(QUARTER)
    three = node_state("a", row, mask((16, 17, 32)), inventory=mask((16, 17, 32)))
    none = node_state("b", row, 0, inventory=1)

    answer, refused = place(row, 1, Cluster([three])), place(row, 1, Cluster([none]))

    assert isinstance(answer, Placement)
    assert answer.reason == (
        "the last 1 free of one chip (2 more free on the node), "
        "on a node with all 3 parts healthy"
    )
    assert isinstance(refused, Rejection)
    assert refused.text == "1 no free part"
