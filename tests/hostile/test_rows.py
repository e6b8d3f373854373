"""Whatever comes from outside: a value, or an error that says what is wrong."""

import pytest
from hypothesis import given, settings

from tests.hostile import mutations
from tests.hostile.row import LawError, Row, check
from tests.hostile.rows import ROWS

EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@EVERY_ROW
def test_a_valid_document_is_taken(row: Row) -> None:
    for seed in row.seeds:
        assert check(row, seed)


@pytest.mark.long
@EVERY_ROW
def test_what_is_always_asked_breaks_no_parser(row: Row) -> None:
    asked = list(mutations.always(row.seeds, row.leaves, alone=not row.is_slow))
    # of a slow one every sixth: `make fuzz` asks everything, at every place
    for _, content in asked[:: 6 if row.is_slow else 1]:
        check(row, content)


@EVERY_ROW
def test_what_is_almost_valid_breaks_no_parser(row: Row) -> None:
    @settings(derandomize=True, database=None, max_examples=3 if row.is_slow else 10)
    @given(mutations.mutated(row.seeds, tuple(row.leaves.values())))
    def always_holds(content: bytes) -> None:
        check(row, content)

    always_holds()


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        pytest.param(KeyError("a"), "a parser: KeyError of b''", id="not-documented"),
        pytest.param(
            ValueError("invalid argument"),
            "does not say what was expected",
            id="does-not-help",
        ),
    ],
)
def test_the_law_is_broken_by_an_error(error: Exception, broken: str) -> None:
    def read(_content: bytes) -> None:
        raise error

    row = Row(name="a parser", read=read, seeds=(b"",), errors=(ValueError,))

    with pytest.raises(LawError, match=broken):
        check(row, b"")


def test_the_law_is_broken_by_half_a_change() -> None:
    changed: list[bytes] = []

    def read(content: bytes) -> None:
        changed.append(content)
        raise ValueError("document: expected nothing, found something")

    row = Row(
        name="a parser",
        read=read,
        seeds=(b"",),
        errors=(ValueError,),
        state=lambda: tuple(changed),
    )

    with pytest.raises(LawError, match="half applied"):
        check(row, b"x")
