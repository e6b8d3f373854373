"""Which further rows the agent says that the same chips may be."""

import re
from pathlib import Path

import pytest

from agent.devices import look_alikes
from agent.devices.dcmi import machine
from agent.devices.reading import Reading
from scheduler_core.products import lookup, table
from scheduler_core.products.lookup import find_node_row
from tests.agent.devices.played_library import server
from tests.machines import node_state

DOCS = Path(__file__).parents[3] / "docs" / "rows.md"


def reading(key: str, chips: int, product_type: str = "") -> Reading:
    return Reading(
        product=table.by_key(key), chips=tuple(range(chips)), product_type=product_type
    )


@pytest.mark.parametrize(
    ("shown", "keys"),
    [
        (reading("atlas-800-training", 8), ("a300t",)),
        (reading("atlas-800-training", 8, "Atlas 800"), ()),
        (reading("a300t", 8, "Atlas 300T-9000"), ()),
        (reading("atlas-a2-8", 8), ()),
        (reading("atlas-a2-8", 2), ("flat-2",)),
        (reading("atlas-a2-box16", 16), ()),
        (reading("atlas-a3-16", 16), ()),
        (reading("atlas-a3-16-superpod", 16), ("atlas-a3-16",)),
        (reading("atlas-310p", 4), ()),
    ],
)
def test_only_what_the_chips_do_not_prove_is_left_open(
    shown: Reading, keys: tuple[str, ...]
) -> None:
    assert look_alikes.find(shown) == keys


@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_d1_servers_with_inference_cards_serve_jobs_that_select_them(
    cards: int,
) -> None:
    [shown] = machine.products_of(server(cards, name="910B4", board_id=0x28))
    row = table.by_key(shown.key)
    text = lookup.accelerator_type_of(row)
    wanted = lookup.find_row(row.resource, {"accelerator-type": text})
    state = node_state("n1", row, inventory=shown.all_chips)

    assert (shown.chip_count, row.key, text) == (
        cards,
        "atlas-300i-a2",
        "card-910b-infer",
    )
    assert wanted is not None
    assert state.row_for(wanted) is row


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_a_row_that_looks_alike_is_one_that_a_label_means(row: table.Product) -> None:
    keys = look_alikes.find(Reading(product=row, chips=(0,)))

    for other in map(table.by_key, keys):
        assert (other.resource, other.key) != (row.resource, row.key)
        assert other.resource == row.resource
        # a missing label means a row too, and is no word against the agent's
        assert find_node_row(row.resource, {}) is not other
        said = [text for text in (*other.accelerator_types, *other.node_types) if text]
        labels = {"accelerator-type": said[0]}
        assert find_node_row(row.resource, labels, [row.key, *keys]) is other


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_the_page_names_labels_of_a_row_and_rows_that_look_alike(
    row: table.Product,
) -> None:
    keys = look_alikes.find(Reading(product=row, chips=(0,)))
    values = [text for text in (*row.accelerator_types, *row.node_types) if text]
    [line] = re.findall(rf"^\| `{row.key}` \|.*$", DOCS.read_text(), re.MULTILINE)
    *_, labels, alike, _ = line.split("|")
    named = re.findall(r"`([^`]+)`", labels)

    assert [text for text in named if text != "infer-card-type"] == values
    assert ("infer-card-type" in named) == bool(row.node_labels)
    assert re.findall(r"`([a-z0-9-]+)`", alike) == list(keys)
