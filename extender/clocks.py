"""The clocks that decisions need, as functions, so that tests can turn them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from service import clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Two clocks: one for how long things take, one for what is written down.

    The first begins at what the clock on the wall says, because the first report of a
    node is as old as its own time says. From then on it only goes forwards, second by
    second: else a step of the clock on the wall ahead would be a long silence of all
    agents at once, and a step back would keep alive whatever ends by time.
    """

    #: seconds since the epoch, as if nobody ever stepped a clock
    now_s: Callable[[], float]
    #: what the clock on the wall says; nanoseconds since the epoch
    now_ns: Callable[[], int]

    def wall_s(self) -> float:
        """Return what the clock on the wall says. Unit: seconds since the epoch."""
        return self.now_ns() / 1e9


def of_this_machine() -> Clock:
    """Return the clocks here, from now on; to be called in the event loop."""
    passed_s = asyncio.get_running_loop().time
    ahead_s = clock.wall_s() - passed_s()
    return Clock(now_s=lambda: ahead_s + passed_s(), now_ns=clock.wall_ns)
