"""Blocking calls in a thread that does not delay the end of the process.

asyncio joins its own threads when the process ends. One call that hangs (a stalled
disk, a driver) would keep the process from ending. This thread is a daemon.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Thread that runs calls one after another, in their order.

    It ends with the process, or when the worker is garbage-collected.
    """

    def __init__(self, name: str) -> None:
        """Start no thread; the first call does.

        Args:
            name: Name of the thread, for dumps.
        """
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._calls.put, None)

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Queue a function call and return its future at once.

        A caller that stops waiting must not cancel the future: the call goes on, and
        its result would be lost.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def carry_out() -> None:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001  # the caller handles it
                _post(loop, _fail, outcome, error)
            else:
                _post(loop, _succeed, outcome, result)

        self._calls.put(carry_out)
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._calls,), name=self._name, daemon=True
            )
            self._thread.start()
        return outcome


def _work(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    """Run calls until the worker is gone."""
    while (call := calls.get()) is not None:
        call()


def _post(loop: asyncio.AbstractEventLoop, *callback: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed, so no task waits
        loop.call_soon_threadsafe(*callback)


def _succeed(outcome: asyncio.Future[T], result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: asyncio.Future[Any], error: BaseException) -> None:
    if not outcome.done():
        outcome.set_exception(error)
