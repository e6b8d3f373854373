"""How long ago something was, in the few letters that `kubectl get` has for it.

Source: apimachinery v0.36.3, `pkg/util/duration/duration.go`.
"""

import datetime as dt

_UNKNOWN = "<unknown>"
_INVALID = "<invalid>"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY


def since(timestamp: str | None, now_s: float) -> str:
    """Return how long ago a timestamp was.

    Args:
        timestamp: As objects carry it; empty for never.
        now_s: Seconds since 1970.
    """
    if not timestamp:
        return _UNKNOWN
    try:
        moment = dt.datetime.fromisoformat(timestamp)
    except ValueError:
        return _UNKNOWN
    # Timestamps are whole seconds, cut off: to round the age would make it older.
    return human(now_s - moment.timestamp())


def human(seconds: float) -> str:
    """Return a duration in the two largest units that say something."""
    whole = int(seconds)
    if whole < -1:
        return _INVALID
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    for limit, unit, letter, smaller, small_letter in (
        (10 * _MINUTE, _MINUTE, "m", 1, "s"),
        (3 * _HOUR, _MINUTE, "m", 0, ""),
        (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
        (2 * _DAY, _HOUR, "h", 0, ""),
        (8 * _DAY, _DAY, "d", _HOUR, "h"),
        (2 * _YEAR, _DAY, "d", 0, ""),
        (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    ):
        if whole < limit:
            count, rest = divmod(whole, unit)
            small = rest // smaller if smaller else 0
            return f"{count}{letter}" + (f"{small}{small_letter}" if small else "")
    return f"{whole // _YEAR}y"
