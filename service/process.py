"""Lifecycle of a process: one main coroutine, two signals, three exit codes.

Exit code 0: the process was stopped by a signal, or has finished. 1: it failed, with
one traceback in the log; the supervisor restarts it. 2: its settings are wrong.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from service import open_files
from service.settings import SettingsError

log = logging.getLogger(__name__)

STOPPED = 0
FAILED = 1
MISUSED = 2

Main = Callable[[], Coroutine[Any, Any, None]]


def run(main: Main) -> int:
    """Run the main coroutine until it ends or a signal arrives; return the exit code.

    SIGTERM and SIGINT cancel the coroutine. A second SIGINT ends the process at once.
    The process may then open as many files as its hard limit allows.

    Args:
        main: Makes the coroutine; may raise SettingsError itself.
    """
    open_files.raise_limit()
    try:
        return asyncio.run(_until_signalled(main()))
    except SettingsError as error:
        return _report_misuse(error)
    except Exception as error:  # noqa: BLE001  # the outermost edge of a process
        return _report_failure(error)


async def _until_signalled(main: Coroutine[Any, Any, None]) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(open_files.SparseErrors(loop.time))
    task = loop.create_task(main, name="main")
    signal_names: list[str] = []

    def stop(signum: signal.Signals) -> None:
        if not signal_names:
            log.info("stopping", extra={"signal": signum.name})
            task.cancel()
            loop.remove_signal_handler(signal.SIGINT)
            # The kernel handles the next Ctrl-C, so that no cleanup can delay it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal_names.append(signum.name)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)
    try:
        await task
    except asyncio.CancelledError:
        if not signal_names:
            raise
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
    return STOPPED


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in an exception group, at any depth.

    Args:
        error: Any exception; one without a group is yielded itself.
    """
    if isinstance(error, BaseExceptionGroup):
        for child in error.exceptions:
            yield from causes(child)
    else:
        yield error


def _report_failure(error: Exception) -> int:
    errors = list(causes(error))
    misuses = [cause for cause in errors if isinstance(cause, SettingsError)]
    if len(misuses) == len(errors):
        return _report_misuse(misuses[0])
    first_error, *other_errors = errors
    # One traceback: in a crash loop the cause matters, not the task groups.
    log.critical(
        "failed",
        exc_info=first_error,
        extra={
            "error": repr(first_error),
            "also": [repr(cause) for cause in other_errors],
        },
    )
    return FAILED


def _report_misuse(error: SettingsError) -> int:
    for problem in error.problems:
        print(problem, file=sys.stderr)  # noqa: T201  # for a person, before any log
    return MISUSED
