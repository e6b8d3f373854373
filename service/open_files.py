"""How many files and connections this process may have open, and what if that is all.

Container runtimes start processes with a low soft limit (1,024 in containerd 2 and
Docker 29), which the process itself may raise to its hard limit.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Any

#: Shortest time between two log records about connections that could not be accepted.
#: Unit: seconds.
LOG_EACH_S = 60.0
_UNLIMITED = 1 << 30
#: How asyncio's event loop reports a connection that it could not accept; it tries
#: again each second, for each place in its queue.
#: Source: CPython, `asyncio.selector_events._accept_connection`.
_NOT_ACCEPTED = "socket.accept() out of system resource"


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return that number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    """Return how many files this process may have open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


class SparseErrors:
    """Exception handler of an event loop that reports full tables of files sparsely.

    The state is the time of the last such report.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Start without a report; `now_s` returns the time of a monotonic clock."""
        self._now_s = now_s
        self._reported_s = float("-inf")

    def __call__(
        self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]
    ) -> None:
        """Report the problem in `context` as the loop does, unless it was just now."""
        if context.get("message") == _NOT_ACCEPTED:
            now_s = self._now_s()
            if now_s - self._reported_s < LOG_EACH_S:
                return
            self._reported_s = now_s
        loop.default_exception_handler(context)
