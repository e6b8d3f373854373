"""Wall clock and event-loop clock: the only module that reads either of them.

Wall clocks are for times that people read. All other code takes a clock as an argument
or uses the loop's time. Tests can then move the time.
"""

import asyncio
import datetime as dt
import time

#: An event loop may wake a sleeping task this much too early; seconds.
EARLY_S = 0.001


def wall_s() -> float:
    """Return the seconds since 1970-01-01 UTC."""
    return time.time()  # noqa: TID251  # the one place that may


def wall_ns() -> int:
    """Return the nanoseconds since 1970-01-01 UTC, the unit of predicate-time."""
    return time.time_ns()


def loop_s() -> float:
    """Return the monotonic time of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()


def next_beat_delay_s(period_s: float) -> float:
    """Return the seconds until the loop's time is a multiple of `period_s`.

    Periodic tasks with a common period wake together this way: the process wakes once
    for all of them.

    Args:
        period_s: Unit: seconds, above 0.

    Returns:
        Above 0, at most `period_s + EARLY_S`. A task that wakes early does not run
        twice for one beat.
    """
    delay_s = period_s - loop_s() % period_s
    return delay_s if delay_s > EARLY_S else delay_s + period_s


def rfc3339(seconds: float) -> str:
    """Return a wall time in Kubernetes' format: UTC, whole seconds, `Z`.

    Args:
        seconds: Seconds since 1970-01-01 UTC.
    """
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Return a wall time in Kubernetes' MicroTime format: UTC, microseconds, `Z`.

    Args:
        seconds: Seconds since 1970-01-01 UTC.
    """
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float | None:
    """Return the seconds since 1970-01-01 UTC of a Kubernetes time; None if malformed.

    Args:
        text: With or without a fraction. A time without a zone is malformed.
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None
