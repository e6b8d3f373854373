"""Blocking calls in a thread that nobody waits for.

asyncio's own threads are joined when the process ends, so one call that hangs (a
stalled disk, a driver) would keep it from ending. This thread dies with the process.
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
    """One thread. Calls are carried out one after the other, in their order.

    It ends with the process, or when the worker is no longer in use.
    """

    def __init__(self, name: str) -> None:
        """Begin with the first call.

        Args:
            name: The thread's, for whoever looks at a dump.
        """
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._calls.put, None)

    def call(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Have a function called; returns at once.

        Whoever stops waiting must not cancel the future but leave it: the call
        goes on all the same.

        Args:
            function: Called in the thread.
            args: Its arguments.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def carry_out() -> None:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001  # it is the caller's
                _tell(loop, _fail, outcome, error)
            else:
                _tell(loop, _succeed, outcome, result)

        self._calls.put(carry_out)
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(self._calls,), name=self._name, daemon=True
            )
            self._thread.start()
        return outcome


def _work(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    """Carry out calls until nobody is left who could make one."""
    while (call := calls.get()) is not None:
        call()


def _tell(loop: asyncio.AbstractEventLoop, *what: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
        loop.call_soon_threadsafe(*what)


def _succeed(outcome: asyncio.Future[T], result: T) -> None:
    if not outcome.done():
        outcome.set_result(result)


def _fail(outcome: asyncio.Future[Any], error: BaseException) -> None:
    if not outcome.done():
        outcome.set_exception(error)
