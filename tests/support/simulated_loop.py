"""An event loop whose time passes at once; nothing of it waits.

The plugin `looptime` does the same for one test. A state machine of hypothesis has a
loop for each example, and turns it itself.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Selector(selectors.DefaultSelector):
    """A selector that lets time pass when nothing can be read."""

    def __init__(self, pass_s: Callable[[float], None]) -> None:
        super().__init__()
        self._pass_s = pass_s

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is awaited that can come"
            self._pass_s(max(0.0, timeout))
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop that moves its time to the next timer as soon as nothing else is left."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s
        super().__init__(_Selector(self._pass_s))

    def _pass_s(self, seconds: float) -> None:
        self._now_s += seconds

    def time(self) -> float:
        return self._now_s

    def run_for(self, seconds: float) -> None:
        """Run all tasks for so long."""
        self.run_until_complete(asyncio.sleep(seconds))
