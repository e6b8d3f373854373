"""Texts about parts, byte for byte, and read back; what is almost right is an error."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.parts import templates
from scheduler_core.products.table import by_key
from scheduler_core.wire import deviceinfo, parts
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.deviceinfo import Affinity, DeviceInfo
from scheduler_core.wire.parts import (
    ChosenPart,
    FreeAmounts,
    MountedPart,
    PartState,
    PublishedPart,
)
from tests.support.rows import rows

ROW = by_key("atlas-310p")
#: most characters of a node's `AscendAffinity`
_MOST_CHARACTERS = 32_000

numbers = st.integers(0, ROW.chip_count - 1)
names = st.sampled_from([t.name for chip in templates.CHIPS for t in chip.templates])
kinds = st.sampled_from([t.kind for chip in templates.CHIPS for t in chip.templates])
groups = st.none() | st.integers(0, 3)


def test_a_choice_is_written_as_volcano_reads_it() -> None:
    assert parts.render_choice(ChosenPart(0, "vir02_1c")) == "0-vir02_1c"
    assert parts.render_choice((10, 2)) == "2,10"


@given(st.builds(ChosenPart, numbers, names) | st.sets(numbers, min_size=1))
def test_a_choice_is_read_back(choice: ChosenPart | set[int]) -> None:
    given = choice if isinstance(choice, ChosenPart) else tuple(sorted(choice))

    assert parts.parse_choice(parts.render_choice(given), ROW) == given


@rows(
    ("text", "part"),
    {
        "with a vGroup": (
            "Ascend310P-2c.1cpu-100-0_1",
            MountedPart("2c.1cpu", 100, 0, 1),
        ),
        "without": ("Ascend310P-1c-148-3", MountedPart("1c", 148, 3, None)),
        "with media units": (
            "Ascend310P-4c.3cpu.ndvpp-116-1_0",
            MountedPart("4c.3cpu.ndvpp", 116, 1, 0),
        ),
    },
)
def test_a_mounted_part_is_written_and_read_as_mindcluster_does(
    text: str, part: MountedPart
) -> None:
    assert parts.render_mounted(part, ROW) == text
    assert parts.parse_mounted(text, ROW) == part


@given(st.builds(MountedPart, kinds, st.integers(0, 2**31 - 1), numbers, groups))
def test_a_mounted_part_is_read_back(part: MountedPart) -> None:
    assert parts.parse_mounted(parts.render_mounted(part, ROW), ROW) == part


def test_device_ids_of_ai_cores_are_in_the_order_of_their_names() -> None:
    assert parts.render_core_ids([9, 10, 8]) == "npu-core-10,npu-core-8,npu-core-9"
    assert parts.parse_core_ids("npu-core-10,npu-core-8") == (8, 10)


@rows(
    ("text", "found"),
    {
        "310P": ("Ascend310P-8", ("Ascend310P", 8)),
        "A2": ("Ascend910B-20", ("Ascend910B", 20)),
        "of a person": ("soc", None),
        "no cores": ("Ascend310P-0", None),
        "longer": ("Ascend310P-8-x", None),
    },
)
def test_a_server_type_is_read_where_it_is_one(
    text: str, found: tuple[str, int] | None
) -> None:
    assert parts.parse_server_type(text) == found
    if found is not None:
        assert parts.render_server_type(*found) == text


Parse = Callable[[str], Any]


def choice_of(text: str) -> object:
    return parts.parse_choice(text, ROW)


def mounted_of(text: str) -> object:
    return parts.parse_mounted(text, ROW)


@rows(
    ("parse", "text"),
    {
        "empty": (choice_of, ""),
        "no template": (choice_of, "0-"),
        "no chip": (choice_of, "-vir01"),
        "unknown form": (choice_of, "0-vir1"),
        "two parts": (choice_of, "0-vir01,1-vir01"),
        "chip twice": (choice_of, "0,0"),
        "chip that is not there": (choice_of, f"{ROW.chip_count}-vir01"),
        "leading zero": (choice_of, "01"),
        "blank": (choice_of, "0, 1"),
        "foreign digit": (choice_of, "\u0661"),
        "mounted whole": (mounted_of, "Ascend310P-0"),
        "mounted on another line": (mounted_of, "Ascend910-2c.1cpu-100-0_1"),
        "mounted chip that is not there": (mounted_of, "Ascend310P-1c-100-99_0"),
        "mounted without kind": (mounted_of, "Ascend310P-100-0_1"),
        "mounted with two vGroups": (mounted_of, "Ascend310P-1c-100-0_1_1"),
        "mounted with a huge number": (mounted_of, "Ascend310P-1c-9999999999-0_1"),
        "core id of a chip": (parts.parse_core_ids, "Ascend310P-0"),
        "core id twice": (parts.parse_core_ids, "npu-core-1,npu-core-1"),
        "core id without number": (parts.parse_core_ids, "npu-core-"),
    },
)
def test_a_text_that_is_almost_right_is_an_error(parse: Parse, text: str) -> None:
    with pytest.raises(WireError):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_is_an_error(text: str) -> None:
    for parse in (choice_of, mounted_of, parts.parse_core_ids):
        try:
            parse(text)
        except WireError:
            continue


def _report(affinity: Affinity) -> str:
    info = DeviceInfo(update_time=0)
    return deviceinfo.render(info, affinity, ROW)["AscendAffinity"]


PARTS = (
    PublishedPart(0, "vir02_1c", 100, 1, PartState.HELD),
    PublishedPart(1, "vir05_1c_16g", 116, None, PartState.RELEASING),
)
FREE = {0: FreeAmounts(6, 6, 0b1101), 1: FreeAmounts(15, 6, None)}


def test_a_report_has_parts_and_what_is_free_beside_them() -> None:
    text = _report(Affinity(sequence=1, held=(0, 1), parts=PARTS, free=FREE))

    assert text == (
        '{"version":1,"held":["Ascend310P-0","Ascend310P-1"],"releasing":[],'
        '"sequence":1,"parts":['
        '{"chip":"Ascend310P-0","template":"vir02_1c","vdev":100,"group":1,'
        '"state":"held"},'
        '{"chip":"Ascend310P-1","template":"vir05_1c_16g","vdev":116,'
        '"state":"releasing"}],'
        '"chips":{"Ascend310P-0":{"cores":6,"aicpu":6,"groups":"0b1101"},'
        '"Ascend310P-1":{"cores":15,"aicpu":6}}}'
    )


def test_a_report_of_parts_is_read_back() -> None:
    affinity = Affinity(sequence=1, held=(0, 1), parts=PARTS, free=FREE)

    assert deviceinfo.parse_affinity(_report(affinity), ROW) == affinity


def test_a_report_of_whole_chips_says_nothing_of_parts() -> None:
    text = _report(Affinity(sequence=1))

    assert text == '{"version":1,"held":[],"releasing":[],"sequence":1}'


def test_a_reader_of_today_takes_no_chip_that_is_cut() -> None:
    """It reads `held`, and ignores the keys that it does not know."""
    text = _report(Affinity(sequence=1, held=(0, 1), parts=PARTS, free=FREE))

    assert deviceinfo.parse_affinity(text, ROW).held == (0, 1)


def test_the_report_of_a_node_with_384_ai_cores_is_small() -> None:
    """Sixteen chips of 24, each with the most parts that it can have."""
    row = by_key("atlas-a3-16")
    cut = [
        PublishedPart(chip, "vir06_1c_16g", 100 + 16 * chip + i, None, PartState.HELD)
        for chip in range(row.chip_count)
        for i in range(4)
    ]
    affinity = Affinity(
        sequence=2**40,
        held=tuple(range(row.chip_count)),
        parts=tuple(cut),
        free={chip: FreeAmounts(0, 2, None) for chip in range(row.chip_count)},
    )
    texts = deviceinfo.render(DeviceInfo(update_time=0), affinity, row)

    assert len(texts["AscendAffinity"]) < _MOST_CHARACTERS
    assert deviceinfo.parse_affinity(texts["AscendAffinity"], row) == affinity


@rows(
    ("key", "value"),
    {
        "no list": ("parts", "{}"),
        "no object": ("parts", "[1]"),
        "unknown state": (
            "parts",
            '[{"chip":"Ascend310P-0","template":"vir01","vdev":1,"state":"new"}]',
        ),
        "unknown template": (
            "parts",
            '[{"chip":"Ascend310P-0","template":"x","vdev":1,"state":"held"}]',
        ),
        "unknown chip": (
            "parts",
            '[{"chip":"Ascend310P-99","template":"vir01","vdev":1,"state":"held"}]',
        ),
        "one number twice": (
            "parts",
            (
                "["
                '{"chip":"Ascend310P-0","template":"vir01","vdev":1,"state":"held"},'
                '{"chip":"Ascend310P-1","template":"vir01","vdev":1,"state":"held"}]'
            ),
        ),
        "group as text": (
            "parts",
            (
                '[{"chip":"Ascend310P-0","template":"vir01","vdev":1,"state":"held",'
                '"group":"1"}]'
            ),
        ),
        "chips as list": ("chips", "[]"),
        "mask as number": (
            "chips",
            '{"Ascend310P-0":{"cores":1,"aicpu":1,"groups":1}}',
        ),
        "mask of letters": (
            "chips",
            '{"Ascend310P-0":{"cores":1,"aicpu":1,"groups":"0b12"}}',
        ),
        "no cores": ("chips", '{"Ascend310P-0":{"aicpu":1}}'),
    },
)
def test_a_report_that_is_almost_right_is_an_error(key: str, value: str) -> None:
    text = f'{{"version":1,"sequence":1,"{key}":{value}}}'
    with pytest.raises(WireError, match=f"AscendAffinity.{key}"):
        deviceinfo.parse_affinity(text, ROW)


def test_parts_of_another_product_line_are_left_to_its_reader() -> None:
    text = (
        '{"version":1,"sequence":1,"parts":['
        '{"chip":"Ascend910-3","template":"vir05_1c_16g","vdev":1,"state":"held"}],'
        '"chips":{"Ascend910-3":{"cores":15,"aicpu":6}}}'
    )

    assert deviceinfo.parse_affinity(text, ROW) == Affinity(sequence=1)
