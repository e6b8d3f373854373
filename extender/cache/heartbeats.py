"""How old are the reports that were there before us?

By their own times, which are of the nodes' clocks; ours may be another. So they are
held against the youngest of them: agents that live have written within five minutes.
"""

from collections.abc import Sequence

from extender.cache.node_record import Record


def ahead_s(records: Sequence[Record], now_s: float) -> float:
    """How much later than the youngest report it is: our clock is no more ahead.

    Args:
        records: All, when all has been read.
        now_s: Seconds since the epoch.
    """
    reports = [record.report for record in records if record.report is not None]
    youngest_s = max((report.update_time for report in reports), default=now_s)
    return max(now_s - youngest_s, 0.0)


def judge(record: Record, ahead_s: float, now_s: float, silent_s: float) -> bool:
    """Judge anew how old a report was; whether that changes anything.

    Args:
        record: Changed in place.
        ahead_s: How far our clock may be ahead of the agents'.
        now_s: Seconds since the epoch.
        silent_s: For how long an agent may show no life.
    """
    if record.report is not None:
        found_s = min(record.report.update_time + ahead_s, now_s)
        record.alive_s = max(record.alive_s, found_s)
    before = record.is_silent
    record.is_silent = record.has_fallen_silent(now_s, silent_s)
    return before != record.is_silent
