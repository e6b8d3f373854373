import pytest

from kube import resource_versions


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0", 0),
        ("18", 18),
        ("9" * 100, 10**100 - 1),
        ("9" * 5000, None),  # Python refuses to read it
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("\u0661", None),
        ("opaque", None),
    ],
)
def test_a_resource_version_is_a_number_or_nothing_can_be_said(
    version: str, number: int | None
) -> None:
    assert resource_versions.parse(version) == number
