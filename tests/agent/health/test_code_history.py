"""Arrivals of a fault code, as the driver's events and its list of codes show them."""

import pytest

from agent.health.code_history import CodeHistory, Presence, extend

#: (seconds, the code in that reading: (events since it was absent, since when) or None)
Look = tuple[float, tuple[int, int] | None]


def arrivals(*looks: Look) -> list[int]:
    history, counts = CodeHistory(since=0.0), []
    for now, shown in looks:
        presence = Presence(count=shown[0], since_ms=shown[1]) if shown else None
        history, count = extend(history, presence, now)
        counts.append(count)
    return counts


@pytest.mark.parametrize(
    ("looks", "counts"),
    [
        (((1, (0, 1)), (2, (0, 1)), (3, None), (9, (0, 9))), [1, 0, 0, 1]),
        (((1, (1, 1)), (2, (1, 1)), (3, (4, 1))), [1, 0, 3]),
        # listed first; the event follows, and only the first one is an echo
        (((1, (0, 1)), (2, (1, 1)), (3, (2, 1))), [1, 0, 1]),
        (((1, (0, 1)), (2, (3, 1))), [1, 2]),
        (((1, (0, 1)), (3.1, (1, 1))), [1, 1]),
        # the event first; the list lags behind
        (((1, (1, 1)), (2, None), (3, (0, 3))), [1, 0, 0]),
        (((1, (1, 1)), (2, None), (3.1, (0, 3))), [1, 0, 1]),
        # gone and back between two readings that were not seen: a smaller count
        (((1, (5, 1)), (2, (2, 2))), [5, 2]),
    ],
)
def test_each_arrival_counts_once(looks: tuple[Look, ...], counts: list[int]) -> None:
    assert arrivals(*looks) == counts


def test_a_fault_that_began_again_is_there_since_then() -> None:
    history, _ = extend(CodeHistory(since=0.0), Presence(count=1, since_ms=5), 1.0)

    history, _ = extend(history, Presence(count=2, since_ms=5), 2.0)
    assert history.since == 1.0
    history, _ = extend(history, Presence(count=3, since_ms=9), 3.0)
    assert history.since == 3.0
