"""What is counted as the time of a call that is due at a certain moment."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from benchmarks.pace import paced


@dataclass(slots=True)
class Hours:
    """A clock that runs while somebody sleeps or is called."""

    #: how long each call takes
    durations_s: Iterator[float]
    #: by how much each sleep is too long
    oversleeps_s: float = 0.0
    now_s: float = 100.0
    began_s: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.oversleeps_s

    def call(self) -> None:
        self.began_s.append(self.now_s)
        self.now_s += next(self.durations_s)


def times(clock: Hours, *, rate: float, calls: int) -> list[float]:
    return paced(
        clock.call,
        rate=rate,
        calls=calls,
        now_s=lambda: clock.now_s,
        sleep=clock.sleep,
    )


def test_calls_begin_when_they_are_due() -> None:
    clock = Hours(iter([0.01, 0.02, 0.03]))

    assert times(clock, rate=10, calls=3) == pytest.approx([10, 20, 30])
    assert clock.began_s == pytest.approx([100.0, 100.1, 100.2])


def test_who_has_to_wait_for_a_slow_call_was_late_from_when_he_was_due() -> None:
    """The first takes 250 ms, and a call is due every 100 ms."""
    clock = Hours(iter([0.25, 0.01, 0.01, 0.01]))

    assert times(clock, rate=10, calls=4) == pytest.approx([250, 160, 70, 10])
    assert clock.began_s == pytest.approx([100.0, 100.25, 100.26, 100.3])


def test_a_sleep_that_is_too_long_is_nobodys_time() -> None:
    clock = Hours(iter([0.01, 0.01]), oversleeps_s=0.005)

    assert times(clock, rate=10, calls=2) == pytest.approx([10, 10])
