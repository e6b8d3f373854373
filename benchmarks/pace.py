"""Calls at a steady pace, and how long each of them took."""

import time
from collections.abc import Callable


def paced(
    call: Callable[[], object],
    *,
    rate: float,
    calls: int,
    now_s: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Make calls one after the other, and return the milliseconds of each.

    A call that is due while the one before it is under way is late from the moment at
    which it was due: one slow answer counts for all who had to wait for it.

    Args:
        call: What is timed.
        rate: How many are due a second.
        calls: How many to make.
        now_s: The clock; never runs backwards.
        sleep: Waits for so many seconds.
    """
    first_s = now_s()
    found: list[float] = []
    for number in range(calls):
        due_s = first_s + number / rate
        wait_s = due_s - now_s()
        if wait_s > 0:
            sleep(wait_s)
            due_s = now_s()  # that we slept too long is no fault of who is called
        call()
        found.append((now_s() - due_s) * 1000)
    return found
