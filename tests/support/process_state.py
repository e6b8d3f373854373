"""What a test may change in its process, and has to put back.

Tests share a process, in random order. A collector that stays frozen fails another
test, and only now and then. Two kinds are not here: pytest puts filters of warnings
back itself, and files, sockets and tasks that stay open are warnings, so errors.
"""

import asyncio
import contextvars
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from decimal import getcontext
from typing import Any

import prometheus_client
from hypothesis import settings

from service import worker

#: A thread or a program that was told to end gets this long.
END_S = 10.0

#: Without SIGALRM, by which pytest-timeout ends a test that hangs.
_SIGNALS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2),
)
_LIMITS = {
    name: getattr(resource, name) for name in dir(resource) if name[:7] == "RLIMIT_"
}
#: pytest says in it which test runs.
_PYTESTS = b"PYTEST_CURRENT_TEST"
_AS_IMPORTED = (logging.NOTSET, True, False, (), ())

#: {kind: value that a test leaves as it was}
State = Mapping[str, Any]


def _collector() -> State:
    return {
        "enabled": gc.isenabled(),
        "thresholds": gc.get_threshold(),
        "debug": gc.get_debug(),
        "frozen": gc.get_freeze_count() > 0,
    }


def _environment() -> object:
    # `os.environ` decodes what it yields: a hundred times as slow
    kept = dict(getattr(os.environ, "_data"))  # noqa: B009  # typeshed has no `_data`
    kept.pop(_PYTESTS, None)
    return kept


def _umask() -> object:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _limits() -> State:
    return {name: resource.getrlimit(number) for name, number in _LIMITS.items()}


def _loggers() -> object:
    """Return what was set at loggers; importing a module makes others."""
    root = logging.getLogger()
    rows: dict[str, object] = {"": (_row(root), root.manager.disable)}
    for name, each in root.manager.loggerDict.items():
        if isinstance(each, logging.Logger) and (row := _row(each)) != _AS_IMPORTED:
            rows[name] = row
    return rows


def _row(each: logging.Logger) -> tuple[object, ...]:
    # a library gives its logger a NullHandler when it is imported
    handlers = [one for one in each.handlers if type(one) is not logging.NullHandler]
    attached = tuple(handlers), tuple(each.filters)
    return each.level, each.propagate, each.disabled, *attached


def _event_loop() -> State:
    # `asyncio.get_event_loop_policy` would make one
    policy = getattr(asyncio.events, "_event_loop_policy", None)
    loop = getattr(getattr(policy, "_local", None), "_loop", None)
    # pytest-asyncio leaves its closed loop; `asyncio.run` in the next test drops it
    is_closed = loop is None or loop.is_closed()
    return {"policy": policy, "loop": None if is_closed else loop}


def _hooks() -> State:
    return {
        "exception": sys.excepthook,
        "display": sys.displayhook,
        "unraisable": sys.unraisablehook,
        "thread": threading.excepthook,
        "trace": sys.gettrace(),
        "profile": sys.getprofile(),
    }


def _streams() -> State:
    return {"in": sys.stdin, "out": sys.stdout, "err": sys.stderr, "argv": sys.argv[:]}


def _import_path() -> State:
    return {
        "path": sys.path[:],
        "finders": sys.meta_path[:],
        "path hooks": sys.path_hooks[:],
    }


def _contexts() -> State:
    """Return {name: value} of context variables; each has another name."""
    precision = (
        getcontext().prec
    )  # makes decimal's variable, so that it is always there
    values = {each.name: value for each, value in contextvars.copy_context().items()}
    return {"precision": precision, **values}


def _threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if not _is_collected(each)}


def _is_collected(thread: threading.Thread) -> bool:
    """Whether it ends when its owner is collected: a `Worker`, gRPC's last channel."""
    is_workers = getattr(thread, "_target", None) is worker._work
    return is_workers or thread.name.endswith("(_poll_wrapper)")


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


KINDS: Mapping[str, Callable[[], object]] = {
    "collector": _collector,
    "signal handlers": lambda: {each.name: signal.getsignal(each) for each in _SIGNALS},
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "environment": _environment,
    "working folder": os.getcwd,
    "umask": _umask,
    "limits": _limits,
    "loggers": _loggers,
    "contexts": _contexts,
    "event loop": _event_loop,
    "import path": _import_path,
    "hooks": _hooks,
    "recursion limit": sys.getrecursionlimit,
    "streams": _streams,
    "metrics": lambda: set(prometheus_client.REGISTRY._collector_to_names),
    "hypothesis": lambda: settings.default,
    "threads": _threads,
    "programs": _has_children,
}


#: They may end, and once told to they take a while.
_ENDING = {"threads", "programs"}


def state() -> State:
    """Return what this process is like now."""
    return {kind: read() for kind, read in KINDS.items()}


def left(before: State) -> dict[str, str]:
    """Return {kind: what differs} of each kind that a test left changed."""
    deadline = time.monotonic() + END_S
    changed = _changed(before)
    while changed.keys() & _ENDING and time.monotonic() < deadline:
        time.sleep(0.01)
        changed = _changed(before)
    return {kind: _change(before[kind], now) for kind, now in changed.items()}


def _changed(before: State) -> State:
    return {
        kind: now
        for kind, now in state().items()
        if now != before[kind] and not (kind in _ENDING and now <= before[kind])
    }


def _change(before: object, now: object) -> str:
    """Say what differs, and no more: an environment may hold secrets."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return f"{before!r}, now {now!r}"
    names = [name for name in before | now if before.get(name) != now.get(name)]
    return ", ".join(
        f"{name!r} {before.get(name)!r}, now {now.get(name)!r}" for name in names
    )
