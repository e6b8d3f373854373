"""How a process of ours lives: one main coroutine, two signals, three exit codes.

0 it was told to stop, or was done; 1 it failed (one traceback in the log, the
supervisor starts it again); 2 its settings are wrong.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from service.settings import SettingsError

log = logging.getLogger(__name__)

STOPPED = 0
FAILED = 1
MISUSED = 2

Main = Callable[[], Coroutine[Any, Any, None]]


def run(main: Main) -> int:
    """Run a main coroutine until it ends or a signal says so; return the exit code.

    SIGTERM and SIGINT cancel it. A second SIGINT ends the process at once.

    Args:
        main: Makes the coroutine; may raise SettingsError itself.
    """
    try:
        return asyncio.run(_until_signalled(main()))
    except SettingsError as error:
        return _misused(error)
    except Exception as error:  # noqa: BLE001  # the outermost edge of a process
        return _failed(error)


async def _until_signalled(main: Coroutine[Any, Any, None]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(main, name="main")
    stopping: list[str] = []

    def stop(which: signal.Signals) -> None:
        if not stopping:
            log.info("stopping", extra={"signal": which.name})
            task.cancel()
            loop.remove_signal_handler(signal.SIGINT)
            # The next Ctrl-C is the kernel's business: no cleanup can stand in its way.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        stopping.append(which.name)

    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, stop, which)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping:
            raise
    finally:
        for which in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(which)
    return STOPPED


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what really went wrong: the exceptions inside groups inside groups.

    Args:
        error: Any exception; one that is no group is its own cause.
    """
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    else:
        yield error


def _failed(error: Exception) -> int:
    found = list(causes(error))
    misuses = [cause for cause in found if isinstance(cause, SettingsError)]
    if len(misuses) == len(found):
        return _misused(misuses[0])
    first, *others = found
    # One traceback: a reader of a crash loop wants the cause, not the task groups.
    log.critical(
        "failed",
        exc_info=first,
        extra={"error": repr(first), "also": [repr(other) for other in others]},
    )
    return FAILED


def _misused(error: SettingsError) -> int:
    for problem in error.problems:
        print(problem, file=sys.stderr)  # noqa: T201  # for a person, before any log
    return MISUSED
