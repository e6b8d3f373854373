import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.products.table import PRODUCTS, Product, by_key
from scheduler_core.wire import inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.annotations import WireError

WHERE = "metadata.annotations['baseDeviceInfos']"


def test_the_text_names_every_chip_in_the_order_of_text() -> None:
    assert inventory.render((10, 2), PRODUCT) == (
        '{"Ascend910-10":{"IP":"","SuperDeviceID":-2},'
        '"Ascend910-2":{"IP":"","SuperDeviceID":-2}}'
    )


@pytest.mark.property
@given(st.frozensets(st.integers(0, 7)))
def test_the_inventory_survives_the_round_trip(chips: frozenset[int]) -> None:
    text = inventory.render(chips, PRODUCT)

    assert inventory.parse(text, PRODUCT) == tuple(sorted(chips))


def test_addresses_of_other_makes_are_read_over_and_virtual_devices_left_out() -> None:
    text = (
        '{"Ascend910-3":{"IP":"10.1.1.3","SuperDeviceID":7,"LevelList":[]},'
        '"Ascend910-2c-100-1":{}}'
    )

    assert inventory.parse(text, PRODUCT) == (3,)


@pytest.mark.parametrize("row", PRODUCTS, ids=lambda row: row.key)
def test_the_chips_of_every_line_are_read(row: Product) -> None:
    other = PRODUCT if row.resource != PRODUCT.resource else by_key("atlas-310p")
    last = row.chip_count - 1
    lines = [inventory.Line((1,), other, Addresses())]
    text = inventory.render((last, 0), row, other_lines=lines)

    assert inventory.parse_lines(text) == {
        row.chip_prefix.rstrip("-"): (0, last),
        other.chip_prefix.rstrip("-"): (1,),
    }
    assert inventory.parse_lines("{}") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"{WHERE}: expected JSON ("),
        ("{", f"{WHERE}: expected JSON ("),
        ("[" * 100_000, f"{WHERE}: expected JSON of fewer levels, found '[[["),
        ("[]", f"{WHERE}: expected an object, found []"),
        ('{"Ascend910-8":{}}', f"{WHERE}[0]: expected a chip from Ascend910-0 to"),
        ('{"Ascend31-0":{}}', f"{WHERE}[0]: expected a chip from Ascend910-0 to"),
    ],
    ids=["empty", "cut off", "too deep", "a list", "unknown chip", "wrong prefix"],
)
def test_what_is_not_an_inventory_is_refused(text: str, message: str) -> None:
    with pytest.raises(WireError, match=re.escape(message)):
        inventory.parse(text, PRODUCT)


def test_addresses_stand_beside_the_chips_that_have_one() -> None:
    where = Addresses(chips={2: Address(ip="192.168.20.102", super_device_id=8)})

    assert inventory.render((0, 2), PRODUCT, where) == (
        '{"Ascend910-0":{"IP":"","SuperDeviceID":-2},'
        '"Ascend910-2":{"IP":"192.168.20.102","SuperDeviceID":8}}'
    )


def test_addresses_of_what_is_no_chip_are_refused_in_a_few_words() -> None:
    text = f'{{"{"x" * 5_000}": {{"IP": null}}}}'

    with pytest.raises(WireError, match=rf"^{re.escape(WHERE)}: expected ") as refused:
        inventory.parse_addresses(text, PRODUCT)

    assert len(str(refused.value)) < 400
