"""Numbers of people: what is one, and what is none."""

import pytest

from scheduler_core.wire.annotations import parse_count


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("8", 8), ("007", 7), ("9" * 9, 10**9 - 1)],
)
def test_digits_are_a_number(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize(
    "text", ["", " 8", "8 ", "+8", "-1", "8.0", "1_0", "٨", "²", "9" * 10, "9" * 5000]
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_count(text) is None
