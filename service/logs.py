"""One line of JSON on stderr for each fact.

Keys: `ts` (UTC), `level`, `logger`, `msg`, then what the caller gave in `extra`, then
`exc` with the traceback where there is one.
"""

import datetime as dt
import json
import logging
import sys
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")

#: What every LogRecord has; the rest came in by `extra`.
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        Args:
            record: What was logged; values that JSON lacks are written as text.
        """
        moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
        line: dict[str, object] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _ORDINARY}
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def setup(level: str, *, stream: TextIO | None = None) -> None:
    """Have the whole process log as JSON lines.

    Args:
        level: One of LEVELS.
        stream: Where to; stderr by default.
    """
    target = logging.StreamHandler(stream or sys.stderr)
    target.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [target]
    root.setLevel(level.upper())
