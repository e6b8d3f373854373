import pytest

from sandbox.apiserver.tables import ages

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-2, "<invalid>"),
        (-1.5, "0s"),
        (-1, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 1, "2m1s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE + 59, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (48 * HOUR - 1, "47h"),
        (2 * DAY, "2d"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY + 23 * HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR + 300 * DAY, "8y"),
    ],
)
def test_a_duration_is_told_as_kubernetes_tells_it(seconds: float, shown: str) -> None:
    assert ages.human(seconds) == shown


@pytest.mark.parametrize("never", ["", None, "yesterday"])
def test_what_has_no_time_has_no_age(never: str | None) -> None:
    assert ages.since(never, 0) == "<unknown>"


def test_the_age_is_the_time_since() -> None:
    assert ages.since("1970-01-01T00:00:10Z", 70) == "60s"
    assert ages.since("1970-01-01T00:00:10.500000Z", 70) == "59s"
