"""A clock that a test turns."""

from dataclasses import dataclass

#: Where clocks of tests begin: seconds since the epoch.
NOW_S = 1_800_000_000.0
NOW_NS = 1_800_000_000_000_000_000


@dataclass(slots=True)
class Time:
    """Seconds since the epoch, until a test says otherwise."""

    now_s: float = NOW_S

    def __call__(self) -> float:
        return self.now_s

    def now_ns(self) -> int:
        return int(self.now_s * 1e9)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
