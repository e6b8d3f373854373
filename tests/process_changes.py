"""Tests that leave their process changed, one for each kind of change.

`tests/test_process_state.py` runs them in a process of their own, each to fail.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import prometheus_client
import pytest
from hypothesis import settings

from tests.support import process_state

process_state.END_S = 0.05
VARIABLE = ContextVar("VARIABLE", default=0)


def test_collector() -> None:
    gc.freeze()


def test_collector_threshold() -> None:
    gc.set_threshold(7_000)


def test_signal_handlers() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def test_blocked_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


def test_environment() -> None:
    os.environ["LEFT_BY_A_TEST"] = "1"


def test_working_folder(tmp_path: Path) -> None:
    os.chdir(tmp_path)


def test_umask() -> None:
    os.umask(0o027)


def test_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    soft = 0 if hard == 0 else 4096
    resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))


def test_loggers() -> None:
    logging.getLogger("agent").setLevel(logging.DEBUG)


def test_loggers_handler() -> None:
    logging.getLogger().addHandler(logging.StreamHandler())


def test_contexts() -> None:
    VARIABLE.set(1)


def test_event_loop() -> None:
    asyncio.set_event_loop(asyncio.SelectorEventLoop())


def test_import_path() -> None:
    sys.path.append("/left/by/a/test")


def test_hooks() -> None:
    sys.displayhook = print


def test_recursion_limit() -> None:
    sys.setrecursionlimit(1_234)


def test_streams() -> None:
    sys.argv = ["left", "by", "a", "test"]


def test_metrics() -> None:
    prometheus_client.Counter("left_by_a_test", "A counter.")


def test_hypothesis() -> None:
    settings.load_profile("default")


def test_threads() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_programs() -> None:
    os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)


def test_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEFT_BY_A_TEST", "2")
    monkeypatch.chdir(tmp_path)
