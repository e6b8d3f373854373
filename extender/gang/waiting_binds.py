"""Bind calls that wait for the other pods of their job, by call number.

`Planner.wait` in `planning.planner` adds a call. `permit.step` returns the effects
`ReleaseBinds` and `RefuseBind`, by which the planner lets calls go on or refuses them.
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
    """A waiting bind call: its caller, and the future of its answer."""

    caller: Caller
    #: None: go on; else the sentence of the refusal
    answer: asyncio.Future[str | None]


class WaitingBinds:
    """All waiting bind calls, by number.

    No call is answered more than once.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def caller(self, number: int) -> Caller | None:
        """Return the caller of a bind call; None if the call does not wait any more.

        Args:
            number: Number of the call.
        """
        waiting = self._waiting.get(number)
        return waiting.caller if waiting is not None else None

    def add(self, caller: Caller) -> int:
        """Add a bind call that waits; return the number given to the call."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(caller, answer)
        return number

    async def wait(self, number: int) -> str | None:
        """Wait until a bind call is answered, and return the answer.

        None means that the bind is carried out. A sentence says why it is refused.

        Args:
            number: Number of the call.
        """
        return await self._waiting[number].answer

    def forget(self, number: int) -> None:
        """Remove a bind call, if it is still stored.

        Args:
            number: Number of the call.
        """
        self._waiting.pop(number, None)

    def answer(self, number: int, text: str | None) -> None:
        """Answer a waiting bind call, unless it was answered or removed before.

        Args:
            number: Number of the call.
            text: None lets the bind go on. A sentence refuses it.
        """
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(text)

    def answer_all(self, text: str) -> None:
        """Refuse all waiting bind calls with the same sentence."""
        for number in list(self._waiting):
            self.answer(number, text)

    async def release(self, numbers: Sequence[int]) -> None:
        """Let these bind calls go on, `_AT_ONCE` in each turn of the event loop.

        If thousands went on at once, the first bind would be sent after the last had
        begun. The API server would idle until then.
        """
        for first in range(0, len(numbers), _AT_ONCE):
            for number in numbers[first : first + _AT_ONCE]:
                self.answer(number, None)
            await asyncio.sleep(0)
