"""Structured logs: one JSON object on stderr per record.

Keys: `ts` (UTC), `level`, `logger`, `msg`, then the caller's `extra`, then `exc` with
the traceback, if any.
"""

import datetime as dt
import json
import logging
import sys
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")

#: Attributes of every LogRecord; all others come from `extra`.
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Formatter that writes a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; values that JSON lacks are written as text."""
        moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
        line: dict[str, object] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _RECORD_FIELDS}
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def setup(level: str, *, stream: TextIO | None = None) -> None:
    """Configure the root logger of the process for JSON lines.

    Args:
        level: One of `LEVELS`.
        stream: Destination; stderr by default.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
