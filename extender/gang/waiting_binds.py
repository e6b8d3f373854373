"""Bind calls that wait for the other pods of their job, by call number.

`planning.permits` adds a call and waits for the answer. It answers the call when
`permit.step` returns the effect `ReleaseBinds` or `RefuseBind`. It also refuses calls
of disconnected clients, and all calls when the extender stops.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from extender.gang.events import Caller
from extender.refusals import Refusal

#: Calls released in one turn of the event loop.
_BATCH = 20


@dataclass(slots=True)
class _Waiting:
    caller: Caller
    #: None: go on
    answer: asyncio.Future[Refusal | None]


class WaitingBinds:
    """All waiting bind calls, by number. Each call is answered at most once."""

    def __init__(self) -> None:
        #: {number: call}; callers that have gone are found each second
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._waiting)

    def caller(self, number: int) -> Caller | None:
        """Return the client of a bind call; None if the call is not stored."""
        waiting = self._waiting.get(number)
        return waiting.caller if waiting is not None else None

    def add(self, caller: Caller) -> int:
        """Add a waiting bind call, and return its new number."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(caller, answer)
        return number

    async def wait(self, number: int) -> Refusal | None:
        """Wait until a bind call is answered.

        Returns None if the bind may be sent, else why it is refused.
        """
        return await self._waiting[number].answer

    def forget(self, number: int) -> None:
        """Remove a bind call, answered or not; do nothing if it is not stored."""
        self._waiting.pop(number, None)

    def answer(self, number: int, refusal: Refusal | None) -> None:
        """Answer a waiting bind call; do nothing if it is answered or removed already.

        Args:
            refusal: None lets the bind go on.
        """
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(refusal)

    def refuse_all(self, refusal: Refusal) -> None:
        """Refuse all waiting bind calls."""
        for number in list(self._waiting):
            self.answer(number, refusal)

    async def release(self, numbers: Sequence[int]) -> None:
        """Let these bind calls go on, `_BATCH` in each turn of the event loop.

        If thousands of calls went on in one turn, no bind request would be sent before
        all of them were processed.
        """
        for first in range(0, len(numbers), _BATCH):
            for number in numbers[first : first + _BATCH]:
                self.answer(number, None)
            await asyncio.sleep(0)
