import re
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.wire import quantities
from scheduler_core.wire.quantities import MOST, QuantityError

_SUFFIXES = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (1, "1"),
        (0.5, "500m"),
        ("8", "8"),
        ("2000m", "2"),
        ("100m", "100m"),
        ("0.0001", "1m"),
        ("-0.0001", "-1m"),
        ("1500u", "2m"),
        ("1e-12", "1e-3"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("12e6", "12e6"),
        ("1E3", "1e3"),
        ("1e+4", "10e3"),
        ("1e0", "1"),
        ("1E", "1E"),
        ("1.", "1"),
        ("1.G", "1G"),
        ("1024", "1024"),
        ("1000Ki", "1000Ki"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("16Gi", "16Gi"),
        ("-5Gi", "-5Gi"),
        ("10Ei", "9223372036854775807"),
        ("-10Ei", "-9223372036854775807"),
        ("-3", "-3"),
        ("+3", "3"),
        ("0", "0"),
        ("-0", "0"),
        ("0Ki", "0"),
    ],
)
def test_the_canonical_text_is_that_of_kubernetes(
    sent: str | float, shown: str
) -> None:
    assert quantities.parse(sent).canonical == shown


@pytest.mark.parametrize(
    "sent",
    [
        *("", "two", "1 Gi", "1gi", "--1", "0x1", "1Zi", "1mi", "1kk", "1e", "1Ee3"),
        *(".", "+", "Gi", "1..2", "1e1.5", "1_0", "\u0661", "1\n", "nan", "inf"),
        *(True, None, [], {}, 1e999),
    ],
)
def test_what_is_no_quantity_is_refused(sent: object) -> None:
    with pytest.raises(QuantityError, match="quantities must match the regular"):
        quantities.parse(sent)

    assert quantities.count(sent) == 0


def test_every_short_text_of_the_grammar_has_its_exact_value() -> None:
    numbers = ["".join(n) for size in (1, 2, 3) for n in product("09.", repeat=size)]
    numbers = [n for n in numbers if re.fullmatch(r"\d+\.?\d*|\.\d+", n)]
    for sign, number, suffix in product(
        ("", "+", "-"), numbers, (*_SUFFIXES, *_BINARY, "e2", "E-2", "e+1")
    ):
        read = quantities.parse(sign + number + suffix)

        assert read.milli == _milli(sign + number, suffix), (sign, number, suffix)


@given(st.text("0123456789.+-eEinumkKMGTP", max_size=6))
def test_a_text_is_a_quantity_by_the_grammar_alone(text: str) -> None:
    grammar = r"[+-]?(\d+|\d+\.\d+|\d+\.|\.\d+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?\d+)"

    if re.fullmatch(grammar, text):
        assert quantities.parse(text) == quantities.parse(text.replace("e", "E"))
    else:
        with pytest.raises(QuantityError):
            quantities.parse(text)


@given(
    st.integers(min_value=-(10**22), max_value=10**22),
    st.integers(min_value=0, max_value=25),
    st.sampled_from([*_SUFFIXES, *_BINARY]),
)
def test_a_quantity_is_exact_to_a_thousandth_and_rounded_away_from_zero(
    digits: int, places: int, suffix: str
) -> None:
    padded = f"{abs(digits):026d}"
    point = len(padded) - places
    number = f"{'-' if digits < 0 else ''}{padded[:point]}.{padded[point:]}"

    assert quantities.parse(number + suffix).milli == _milli(number, suffix)


@given(
    st.integers(min_value=-(10**18), max_value=10**18),
    st.sampled_from([*_SUFFIXES, *_BINARY, "e5"]),
)
def test_the_canonical_form_has_the_same_value_and_stays(
    number: int, suffix: str
) -> None:
    read = quantities.parse(f"{number}{suffix}")

    again = quantities.parse(read.canonical)

    assert (again.milli, again.canonical) == (read.milli, read.canonical)


@pytest.mark.parametrize(
    ("text", "whole", "rounded_up"),
    [("8", 8, 8), ("8k", 8000, 8000), ("1500m", None, 2), ("-1500m", None, -1)],
)
def test_a_whole_number_is_told_from_others(
    text: str, whole: int | None, rounded_up: int
) -> None:
    read = quantities.parse(text)

    assert (read.whole, read.rounded_up, quantities.count(text)) == (
        whole,
        rounded_up,
        whole or 0,
    )


def test_no_text_is_too_long_or_its_exponent_too_large() -> None:
    sevens = "7" * 1_100_000

    assert [
        quantities.parse(text).milli
        for text in (
            sevens,
            f"0.{'0' * 1_000_000}1",
            f"{sevens}e-1100000",
            "1e99999999999999999",
            "-1e99999999999999999",
            "1e-99999999999999999",
            "0e99999999999999999",
        )
    ] == [MOST * 1000, 1, 778, MOST * 1000, -MOST * 1000, 1, 0]


def _milli(number: str, suffix: str) -> int:
    """Return thousandths by fractions, which know no precision."""
    if suffix in _BINARY:
        scale = Fraction(2) ** _BINARY[suffix]
    else:
        exponent = int(suffix[1:]) if suffix[1:] else _SUFFIXES[suffix]
        scale = Fraction(10) ** exponent
    exact = Fraction(f"{number}0" if number.endswith(".") else number) * scale
    size = min(-(-abs(exact) * 1000 // 1), MOST * 1000)
    return int(-size if exact < 0 else size)
