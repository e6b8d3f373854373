"""Bind calls that wait for the other pods of their job, by number.

`Planner.wait` in `planning.planner` adds a call. `permit.step` returns the effects
`ReleaseBinds` and `RefuseBind`, by which the planner releases or refuses calls.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from extender.gang.events import Caller

#: Calls released in one turn of the event loop.
_AT_ONCE = 20


@dataclass(slots=True)
class _Waiting:
    """A waiting bind call."""

    caller: Caller
    #: None: go on; else the sentence of the refusal
    answer: asyncio.Future[str | None]


class WaitingBinds:
    """All waiting bind calls. Protects that each of them gets exactly one answer."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def caller(self, number: int) -> Caller | None:
        """Return the caller with that number; None if it does not wait any more."""
        waiting = self._waiting.get(number)
        return waiting.caller if waiting is not None else None

    def add(self, caller: Caller) -> int:
        """Add a waiting caller; return its number."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(caller, answer)
        return number

    async def wait(self, number: int) -> str | None:
        """Wait for the answer: None to go on, else the sentence of the refusal."""
        return await self._waiting[number].answer

    def forget(self, number: int) -> None:
        """Remove a call."""
        self._waiting.pop(number, None)

    def answer(self, number: int, text: str | None) -> None:
        """Answer a call. Does nothing if it was answered or its caller has left."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(text)

    def answer_all(self, text: str) -> None:
        """Give all waiting calls the same answer."""
        for number in list(self._waiting):
            self.answer(number, text)

    async def release(self, numbers: Sequence[int]) -> None:
        """Let these calls go on, a few in each turn of the event loop.

        If thousands went on at once, the first bind would be sent after the last had
        begun, and the API server would idle until then.
        """
        for first in range(0, len(numbers), _AT_ONCE):
            for number in numbers[first : first + _AT_ONCE]:
                self.answer(number, None)
            await asyncio.sleep(0)
