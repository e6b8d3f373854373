"""Clocks of the extender, as functions, so that tests can replace them.

A module of its own: many packages of the extender need the time, and should not import
each other for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Two clocks: a monotonic one for durations, and the wall clock for timestamps.

    Both count from the epoch, so both can be compared with the timestamps that agents
    write. The monotonic clock does not follow later changes of the wall clock.
    Otherwise, setting the wall clock ahead would make all agents seem silent.
    """

    #: monotonic clock; seconds since the epoch, without later steps of the wall clock
    now_s: Callable[[], float]
    #: wall clock; nanoseconds since the epoch
    now_ns: Callable[[], int]

    def wall_s(self) -> float:
        """Return the time of the wall clock. Unit: seconds since the epoch."""
        return self.now_ns() / 1e9

    def format(self, at_s: float) -> str:
        """Return a time of the monotonic clock as one of the wall clock, RFC 3339."""
        return clock.rfc3339(at_s + self.wall_s() - self.now_s())


def of_this_machine() -> Clock:
    """Return the monotonic clock and the wall clock of this machine.

    The monotonic one is the clock of the running event loop, shifted once so that it
    counts from the epoch.

    Raises:
        RuntimeError: No event loop is running.
    """
    passed_s = asyncio.get_running_loop().time
    ahead_s = clock.wall_s() - passed_s()
    return Clock(now_s=lambda: ahead_s + passed_s(), now_ns=clock.wall_ns)
