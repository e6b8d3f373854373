import re

import pytest

from scheduler_core.errors import UnknownProductError
from scheduler_core.products import table
from scheduler_core.products.columns import Network, Order, Way
from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from tests.machines import RINGS, mask


def test_groups_are_the_rings_of_the_machine() -> None:
    assert PRODUCT.groups == tuple(mask(ring) for ring in RINGS)
    assert PRODUCT.all_chips == 0xFF


@pytest.mark.parametrize("row", table.PRODUCTS, ids=lambda row: row.key)
def test_every_row_is_sound(row: table.Product) -> None:
    assert row.chip_count % row.group_size == 0
    assert row.counts
    assert 1 <= min(row.counts) <= max(row.counts) <= row.chip_count
    assert row.source
    for count, left in row.group_preference.items():
        assert len(set(left)) == len(left)
        assert count <= min(left)
        assert max(left) == row.group_size  # a whole group serves any part of it
    for count, ways in row.ways.items():
        if Way.GROUPS in ways and count % row.group_size:
            assert count % row.group_size in row.group_preference
        if {Way.PAIRS, Way.HALVES} & set(ways):
            assert (len(row.groups), count % 2) == (2, 0)
    if row.order is Order.MISFIT:
        assert len(row.groups) == 2


def test_keys_are_unique_and_lead_to_their_rows() -> None:
    keys = [row.key for row in table.PRODUCTS]

    assert [table.by_key(key) for key in keys] == list(table.PRODUCTS)


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    keys = tuple(row.key for row in table.PRODUCTS)
    message = f"product: expected one of {', '.join(keys)}, found 'atlas-900'"
    with pytest.raises(UnknownProductError, match=re.escape(message)) as caught:
        table.by_key("atlas-900")

    assert caught.value.key == "atlas-900"
    assert caught.value.known_keys == keys


@pytest.mark.seed("001-09")
@pytest.mark.parametrize(
    ("server", "networks"),
    [
        ("Atlas 800T A2 training server", {Network.ROCE, Network.ROCE_SINGLE_LAYER}),
        ("Atlas 800I A2 inference server", {Network.ROCE, Network.ROCE_SINGLE_LAYER}),
        ("A200I A2 Box heterogeneous", {Network.ROCE, Network.ROCE_SINGLE_LAYER}),
        ("Atlas 200T A2 Box16 heterogeneous subrack", {Network.ROCE}),
        ("Atlas 200I A2 Box16 heterogeneous subrack", {Network.ROCE}),
        ("Atlas 800 training server (model 9000)", {Network.ROCE}),
        ("Atlas 800 training server (model 9010)", {Network.ROCE}),
        ("Atlas 900 A3 SuperPoD", {Network.UNIFIED_BUS}),
    ],
)
def test_servers_are_joined_by_the_networks_of_the_documents(
    server: str, networks: set[Network]
) -> None:
    rows = [
        row
        for row in table.PRODUCTS
        if any(name.startswith(server) for name in row.servers)
    ]

    assert rows
    assert {network for row in rows for network in row.networks} == networks
