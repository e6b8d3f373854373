import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.apiserver import quantities


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (1, "1"),
        (0.5, "500m"),
        ("8", "8"),
        ("2000m", "2"),
        ("100m", "100m"),
        ("0.0001", "1m"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("12e6", "12M"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("16Gi", "16Gi"),
        ("-3", "-3"),
        ("0", "0"),
    ],
)
def test_quantities_are_shown_in_their_shortest_form(
    sent: str | float, shown: str
) -> None:
    assert quantities.canonical(sent) == shown


@pytest.mark.parametrize(
    "sent", ["", "two", "1 Gi", "1gi", "--1", "0x1", True, None, []]
)
def test_what_is_no_quantity_is_refused(sent: object) -> None:
    with pytest.raises(quantities.QuantityError):
        quantities.canonical(sent)


@given(st.integers(min_value=-(10**18), max_value=10**18), st.sampled_from(["", "Ki"]))
def test_the_canonical_form_has_the_same_value_and_stays(
    number: int, suffix: str
) -> None:
    text = f"{number}{suffix}"

    canonical = quantities.canonical(text)

    assert quantities.whole(canonical) == quantities.whole(text)
    assert quantities.canonical(canonical) == canonical
