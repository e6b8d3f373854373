"""The clocks that decisions need, as functions, so that tests can turn them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Wall clocks, as functions."""

    now_s: Callable[[], float]
    now_ns: Callable[[], int]
