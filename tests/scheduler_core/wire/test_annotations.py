import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.products.table import ATLAS_800_TRAINING as PRODUCT
from scheduler_core.wire import annotations
from scheduler_core.wire.annotations import (
    PREDICATE_TIME,
    SERVED,
    Claim,
    WireError,
    parse_chips,
    parse_claim,
    parse_predicate_time,
    render_chips,
)
from scheduler_core.wire.quote import quote_value
from tests.support.rows import rows

A_CHIP = "a chip from Ascend910-0 to Ascend910-7"
A_NUMBER = "a decimal number from 0 to 18446744073709551615"
WHERE = "metadata.annotations['huawei.com/Ascend910']"
TIME = "metadata.annotations['predicate-time']"


@pytest.mark.seed("000-07")
@pytest.mark.parametrize(
    ("text", "chips"),
    [
        ("Ascend910-0", (0,)),
        ("Ascend910-0,Ascend910-1", (0, 1)),
        ("Ascend910-7,Ascend910-0", (0, 7)),
    ],
)
def test_a_list_of_chips_is_read_in_any_order(
    text: str, chips: tuple[int, ...]
) -> None:
    assert parse_chips(text, PRODUCT) == chips


@rows(
    ("text", "index", "expected", "found"),
    {
        "empty": ("", 0, A_CHIP, ""),
        "blank before": (" Ascend910-0", 0, A_CHIP, " Ascend910-0"),
        "blank after": ("Ascend910-0 ", 0, A_CHIP, "Ascend910-0 "),
        "blank between": ("Ascend910-0, Ascend910-1", 1, A_CHIP, " Ascend910-1"),
        "trailing comma": ("Ascend910-0,", 1, A_CHIP, ""),
        "leading comma": (",Ascend910-0", 0, A_CHIP, ""),
        "twice": ("Ascend910-1,Ascend910-1", 1, "each chip once", "Ascend910-1"),
        "unknown chip": ("Ascend910-8", 0, A_CHIP, "Ascend910-8"),
        "wrong prefix": ("Ascend310-1", 0, A_CHIP, "Ascend310-1"),
        "wrong case": ("ascend910-1", 0, A_CHIP, "ascend910-1"),
        "no prefix": ("1", 0, A_CHIP, "1"),
        "no id": ("Ascend910-", 0, A_CHIP, "Ascend910-"),
        "leading zero": ("Ascend910-01", 0, A_CHIP, "Ascend910-01"),
        "negative": ("Ascend910--1", 0, A_CHIP, "Ascend910--1"),
        "sign": ("Ascend910-+1", 0, A_CHIP, "Ascend910-+1"),
        "foreign digit": ("Ascend910-\u0661", 0, A_CHIP, "Ascend910-\u0661"),
        "line end": ("Ascend910-1\n", 0, A_CHIP, "Ascend910-1\n"),
        "separator": ("Ascend910-1;2", 0, A_CHIP, "Ascend910-1;2"),
        "virtual": ("Ascend910-2c-100-1", 0, A_CHIP, "Ascend910-2c-100-1"),
        "more digits than Python reads": (
            "Ascend910-" + "9" * 5000,
            0,
            A_CHIP,
            "Ascend910-" + "9" * 5000,
        ),
    },
)
def test_a_list_that_is_not_quite_right_is_refused(
    text: str, index: int, expected: str, found: str
) -> None:
    with pytest.raises(WireError) as caught:
        parse_chips(text, PRODUCT)

    error = caught.value
    path = f"{WHERE}[{index}]"
    assert (error.path, error.expected, error.found) == (path, expected, found)
    assert str(error) == f"{path}: expected {expected}, found {quote_value(found)}"


def test_what_is_not_a_text_is_not_a_chip() -> None:
    with pytest.raises(WireError, match=r"held\[0\]: expected a chip .*, found 3"):
        annotations.parse_chip_names([3], PRODUCT, path="held")


@pytest.mark.property
@given(st.frozensets(st.integers(0, 7), min_size=1))
def test_chips_survive_the_round_trip(chips: frozenset[int]) -> None:
    assert parse_chips(render_chips(chips, PRODUCT), PRODUCT) == tuple(sorted(chips))


@pytest.mark.property
@given(st.text(max_size=40))
def test_any_text_gives_chips_or_an_error_of_ours(text: str) -> None:
    try:
        chips = parse_chips(text, PRODUCT)
    except WireError:
        return
    assert sorted(render_chips(chips, PRODUCT).split(",")) == sorted(text.split(","))


def test_lists_are_ordered_by_id_or_as_text() -> None:
    assert render_chips((2, 0), PRODUCT) == "Ascend910-0,Ascend910-2"
    assert render_chips((10, 2, 0), PRODUCT) == "Ascend910-0,Ascend910-2,Ascend910-10"
    assert (
        render_chips((10, 2, 0), PRODUCT, lexicographic=True)
        == "Ascend910-0,Ascend910-10,Ascend910-2"
    )
    assert render_chips((), PRODUCT) == ""


@pytest.mark.seed("000-09")
def test_predicate_time_is_a_number_and_compared_as_one() -> None:
    earlier = parse_predicate_time("999999999999999999")
    later = parse_predicate_time("1700000000000000000")

    assert earlier < later
    assert parse_predicate_time("18446744073709551615") == SERVED
    assert parse_predicate_time("0") == 0


@pytest.mark.seed("000-09")
@rows(
    "text",
    {
        "empty": "",
        "negative": "-1",
        "sign": "+1",
        "underscore": "1_000",
        "fraction": "1.0",
        "exponent": "1e9",
        "blank": " 1",
        "line end": "1\n",
        "hexadecimal": "0x10",
        "foreign digit": "\u0661",
        "a word": "soon",
        "a date": "2024-01-01T00:00:00Z",
        "two to the 64th": "18446744073709551616",
        "more digits than Python reads": "9" * 5000,
    },
)
def test_what_is_not_a_number_of_64_bits_is_refused(text: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_predicate_time(text)

    assert (caught.value.path, caught.value.expected, caught.value.found) == (
        TIME,
        A_NUMBER,
        text,
    )


def test_a_claim_is_chips_and_a_time() -> None:
    claim = parse_claim(
        {PRODUCT.resource: "Ascend910-1,Ascend910-0", PREDICATE_TIME: "17", "x": "y"},
        PRODUCT,
    )

    assert claim == Claim(chips=(0, 1), predicate_time=17)


def test_without_both_annotations_there_is_no_claim() -> None:
    assert parse_claim({"x": "y"}, PRODUCT) is None


@rows(
    ("given_annotations", "message"),
    {
        "no time": (
            {PRODUCT.resource: "Ascend910-0"},
            f"{TIME}: expected a number, because {PRODUCT.resource} is set, found None",
        ),
        "no chips": (
            {PREDICATE_TIME: "17"},
            f"{WHERE}: expected chips, because predicate-time is set, found None",
        ),
        "empty chips": (
            {PRODUCT.resource: "", PREDICATE_TIME: "17"},
            f"{WHERE}[0]: expected {A_CHIP}, found ''",
        ),
        "negative time": (
            {PRODUCT.resource: "Ascend910-0", PREDICATE_TIME: "-1"},
            f"{TIME}: expected {A_NUMBER}, found '-1'",
        ),
    },
)
def test_half_a_claim_is_refused(
    given_annotations: dict[str, str], message: str
) -> None:
    with pytest.raises(WireError) as caught:
        parse_claim(given_annotations, PRODUCT)

    assert str(caught.value) == message
