"""What time is it: the one place that reads clocks.

Wall clocks are for people. Everything else takes a clock from its caller, or the
loop's own time, so that tests can turn the hands.
"""

import asyncio
import datetime as dt
import time

#: So much sooner than asked an event loop may wake who sleeps on it. Unit: seconds.
EARLY_S = 0.001


def wall_s() -> float:
    """Return the seconds since 1970-01-01 UTC."""
    return time.time()  # noqa: TID251  # the one place that may


def wall_ns() -> int:
    """Return the nanoseconds since 1970-01-01 UTC, the unit of predicate-time."""
    return time.time_ns()


def loop_s() -> float:
    """Return the running event loop's time: seconds, from anywhere, only forwards."""
    return asyncio.get_running_loop().time()


def until_beat_s(each_s: float) -> float:
    """Return how long it is until the next multiple of a period of the loop's time.

    Whoever looks after something each so many seconds may as well do so when all who
    do look after theirs: the process then wakes once and not once for each.

    Args:
        each_s: Unit: seconds, above 0.

    Returns:
        More than 0, and at most that and a little: no beat has two looks.
    """
    left_s = each_s - loop_s() % each_s
    return left_s if left_s > EARLY_S else left_s + each_s


def rfc3339(seconds: float) -> str:
    """Return a wall time as Kubernetes writes it: UTC, whole seconds, `Z`.

    Args:
        seconds: Seconds since 1970-01-01 UTC.
    """
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """Return a wall time as Kubernetes writes a MicroTime: UTC, microseconds, `Z`.

    Args:
        seconds: Seconds since 1970-01-01 UTC.
    """
    moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parsed(text: str) -> float | None:
    """Return the seconds since 1970-01-01 UTC of a time as Kubernetes writes it.

    Args:
        text: With or without a fraction; None is returned for what is no such time.
    """
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None
