"""A node with chips of several product lines: what is said of each is read as alone."""

import json
from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.products.table import Product, by_key
from scheduler_core.wire import deviceinfo, inventory
from scheduler_core.wire.addresses import Address, Addresses
from scheduler_core.wire.annotations import (
    WireError,
    is_of_another_line,
    parse_chip_names,
)
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, Fault
from tests.joined import joined

LINES = tuple(
    by_key(key)
    for key in ("atlas-800-training", "atlas-310p", "atlas-300i-chip", "npu-flat-16")
)
TRAINING, INFERENCE = LINES[:2]


class Said(NamedTuple):
    """What is said of the chips of one line."""

    product: Product
    there: tuple[int, ...]
    info: DeviceInfo
    affinity: Affinity
    addresses: Addresses


@st.composite
def said_of(draw: st.DrawFn, product: Product) -> Said:
    """Anything that can be said of a line, ids of which need not begin at 0."""
    there = sorted(draw(st.frozensets(st.integers(0, product.chip_count - 1))))
    ids = st.sampled_from(there) if there else st.nothing()
    some = st.frozensets(ids).map(lambda found: tuple(sorted(found)))
    fault = st.builds(
        Fault, chip=ids, code=st.just("81078603"), level=st.just("SeparateNPU")
    )
    info = DeviceInfo(
        available=draw(some),
        unhealthy=draw(some),
        faults=tuple(draw(st.lists(fault, max_size=1))),
        update_time=7,
    )
    affinity = Affinity(
        held=draw(some), releasing=draw(some), lost=draw(some), sequence=3
    )
    addresses = Addresses(
        chips={chip: Address(ip="", super_device_id=chip) for chip in there}
    )
    return Said(product, tuple(there), info, affinity, addresses)


@pytest.mark.property
@given(
    st.sampled_from(list(permutations(LINES, 2))).flatmap(
        lambda pair: st.tuples(*(said_of(product) for product in pair))
    )
)
def test_any_mix_of_two_lines_is_read_as_each_alone(lines: tuple[Said, ...]) -> None:
    alone = [deviceinfo.render(one.info, one.affinity, one.product) for one in lines]
    device_info = joined([each["DeviceInfoCfg"] for each in alone])
    affinity = joined([each["AscendAffinity"] for each in alone])
    listed = joined(
        [inventory.render(one.there, one.product, one.addresses) for one in lines]
    )

    for one in lines:
        product = one.product
        assert deviceinfo.parse_device_info(device_info, product) == one.info
        assert deviceinfo.parse_affinity(affinity, product) == one.affinity
        assert inventory.parse(listed, product) == one.there
        assert inventory.parse_addresses(listed, product) == one.addresses.chips


@pytest.mark.parametrize(
    ("name", "is_another"),
    [
        ("Ascend310P-8", True),
        ("Ascend310-0", True),
        ("npu-15", True),
        ("Ascend910-8", False),
        ("Ascend310P-64", False),
        ("Ascend310P-08", False),
        ("Ascend320-0", False),
        ("Ascend310P", False),
        (3, False),
    ],
)
def test_only_names_of_chips_of_lines_that_there_are_are_left_out(
    name: object, is_another: bool
) -> None:
    assert is_of_another_line(name, TRAINING) is is_another


def test_what_is_of_no_line_is_refused_where_it_stands() -> None:
    names = ["Ascend310P-8", "Ascend910-1", "Ascend310P-99"]
    listed = json.dumps({name: {} for name in names})
    held = json.dumps({"version": 1, "sequence": 1, "held": names})

    with pytest.raises(WireError, match=r"AscendAffinity.held\[2\]: expected a chip"):
        deviceinfo.parse_affinity(held, TRAINING)
    with pytest.raises(WireError, match="expected a chip from Ascend910-0 to"):
        inventory.parse(listed, TRAINING)


def test_a_claim_names_chips_of_one_line_only() -> None:
    with pytest.raises(WireError, match=r"x\[1\]: expected a chip from Ascend910-0"):
        parse_chip_names(["Ascend910-0", "Ascend310P-8"], TRAINING, path="x")


def test_virtual_devices_of_another_line_are_left_out_too() -> None:
    listed = '{"Ascend910-3":{},"Ascend310P-2c.1cpu-100-8":{},"Ascend310P-2c-100-9":{}}'

    assert inventory.parse(listed, TRAINING) == (3,)


def test_faults_of_two_lines_that_share_a_key_are_told_apart() -> None:
    cards = by_key("atlas-300i-chip")
    fault = Fault(chip=3, code="80E18401", level="RestartNPU")
    texts = [
        deviceinfo.render(
            DeviceInfo(faults=(fault,), update_time=1), Affinity(sequence=1), product
        )["DeviceInfoCfg"]
        for product in (cards, INFERENCE)
    ]

    for product in (cards, INFERENCE):
        found = deviceinfo.parse_device_info(joined(texts), product)
        assert found.faults == (fault,)
