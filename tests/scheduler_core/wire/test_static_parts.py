"""Texts about parts that were cut beforehand, and what readers without them see."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.products import lookup
from scheduler_core.products.columns import Product
from scheduler_core.products.table import ATLAS_800_TRAINING as TRAINING
from scheduler_core.wire import annotations, deviceinfo, inventory
from scheduler_core.wire.addresses import Addresses
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo, StaticParts


def row_of(kind: str) -> Product:
    row = lookup.find_virtual_row(f"huawei.com/{kind}")
    assert row is not None
    return row


QUARTER, HALF = row_of("Ascend910-4c"), row_of("Ascend910-8c")


@pytest.mark.parametrize("resource", lookup.STATIC_PARTS)
def test_every_name_is_that_of_one_part(resource: str) -> None:
    row = row_of(resource.partition("/")[2])
    ids = range(row.chip_count)
    names = [annotations.chip_name(part, row) for part in ids]
    prefix = resource.partition("/")[2]

    assert names == [f"{prefix}-{100 + part}-{part // 16}" for part in ids]
    assert [annotations.parse_chip(name, row, path="") for name in names] == [*ids]


@pytest.mark.parametrize(
    "name",
    [
        "Ascend910-4c-117-2",  # the number is one of chip 1
        "Ascend910-4c-99-0",
        "Ascend910-4c-356-16",  # a server has 16 chips
        "Ascend910-4c-0117-1",
        "Ascend910-4c-117",
        "Ascend910-4c-117-1_0",
        "Ascend910-4c-117-1-1",
        f"Ascend910-4c-{'1' * 9}-1",
        "Ascend910-4c.3cpu-117-1",
        "Ascend910-1",
        "",
        None,
    ],
)
def test_names_that_no_part_has_are_refused(name: object) -> None:
    with pytest.raises(WireError, match="expected a chip from Ascend910-4c-100-0"):
        annotations.parse_chip(name, QUARTER, path="x")


def test_a_claim_names_the_part() -> None:
    said = {"huawei.com/Ascend910-4c": "Ascend910-4c-117-1", "predicate-time": "7"}

    claim = annotations.parse_claim(said, QUARTER)

    assert claim == annotations.Claim(chips=(17,), predicate_time=7)


@st.composite
def affinities(draw: st.DrawFn) -> Affinity:
    some = st.frozensets(st.integers(0, 255), max_size=3).map(sorted).map(tuple)
    return Affinity(held=draw(some), releasing=draw(some), lost=draw(some), sequence=1)


@pytest.mark.property
@given(affinities(), affinities(), affinities())
def test_each_kind_and_the_chips_are_read_as_they_were_written(
    of_quarters: Affinity, of_halves: Affinity, of_chips: Affinity
) -> None:
    def within(affinity: Affinity, most: int) -> Affinity:
        return Affinity(
            held=tuple(chip for chip in affinity.held if chip < most),
            releasing=tuple(chip for chip in affinity.releasing if chip < most),
            lost=tuple(chip for chip in affinity.lost if chip < most),
            sequence=3,
        )

    chips = within(of_chips, 8)
    text = deviceinfo.render(
        DeviceInfo(update_time=1),
        Affinity(
            held=chips.held, releasing=chips.releasing, lost=chips.lost, sequence=1
        ),
        TRAINING,
        static_parts=[
            StaticParts(QUARTER, of_quarters),
            StaticParts(HALF, of_halves),
        ],
    )["AscendAffinity"]

    assert deviceinfo.parse_affinity(text, TRAINING) == chips
    assert deviceinfo.parse_affinity(text, QUARTER) == within(of_quarters, 256)
    assert deviceinfo.parse_affinity(text, HALF) == within(of_halves, 256)


def test_parts_are_published_beside_the_keys_that_every_reader_knows() -> None:
    text = deviceinfo.render(
        DeviceInfo(update_time=1),
        Affinity(held=(6, 7), sequence=4),
        TRAINING,
        static_parts=[StaticParts(QUARTER, Affinity(held=(112, 97), sequence=2))],
    )["AscendAffinity"]
    idle = deviceinfo.render(
        DeviceInfo(update_time=1),
        Affinity(sequence=4),
        TRAINING,
        static_parts=[StaticParts(QUARTER, Affinity(sequence=2))],
    )["AscendAffinity"]

    assert json.loads(text) == {
        "version": 1,
        "held": ["Ascend910-6", "Ascend910-7"],
        "releasing": [],
        "sequence": 6,
        "static": {"held": ["Ascend910-4c-197-6", "Ascend910-4c-212-7"]},
    }
    assert "static" not in json.loads(idle)


@pytest.mark.parametrize(
    ("static", "said"),
    [
        ("[]", r"AscendAffinity.static: expected an object"),
        ('{"held": {}}', r"AscendAffinity.static.held: expected"),
        (
            '{"held": ["Ascend910-4c-197-7"]}',
            r"AscendAffinity.static.held\[0\]: expected a chip from Ascend910-4c-100-0",
        ),
    ],
)
def test_malformed_parts_are_told_and_make_no_chip_unreadable(
    static: str, said: str
) -> None:
    text = f'{{"version": 1, "sequence": 1, "held": [], "static": {static}}}'

    with pytest.raises(WireError, match=said):
        deviceinfo.parse_affinity(text, QUARTER)
    assert deviceinfo.parse_affinity(text, TRAINING) == Affinity(sequence=1)


def test_the_inventory_has_chips_and_parts_and_each_reads_its_own() -> None:
    text = inventory.render(
        range(8),
        TRAINING,
        None,
        [
            inventory.Line((96, 97, 112), QUARTER, Addresses()),
            inventory.Line((113,), HALF, Addresses()),
        ],
    )

    assert inventory.parse(text, TRAINING) == tuple(range(8))
    assert inventory.parse(text, QUARTER) == (96, 97, 112)
    assert inventory.parse(text, HALF) == (113,)
    assert inventory.parse(text, row_of("Ascend910-2c")) == ()
    assert inventory.parse_lines(text) == {"Ascend910": tuple(range(8))}


def test_a_number_that_is_not_one_of_its_chip_leaves_its_kind_without_ids() -> None:
    text = '{"Ascend910-7":{},"Ascend910-4c-212-7":{},"Ascend910-4c-100-7":{}}'

    assert inventory.parse(text, QUARTER) == ()
    assert inventory.parse(text, TRAINING) == (7,)
