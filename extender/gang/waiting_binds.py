"""Bind calls that wait at the gate, by number, and how they get their answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from extender.gang.events import Caller

#: Calls that go on in one turn of the loop.
_AT_ONCE = 20


@dataclass(slots=True)
class _Waiting:
    """A bind call at the gate."""

    caller: Caller
    #: None: go on; else the sentence that refuses it
    answer: asyncio.Future[str | None]


class Calls:
    """Those who wait. Protects that each of them gets one answer."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def caller(self, number: int) -> Caller | None:
        """Who waits by that number, if anybody does."""
        waiting = self._waiting.get(number)
        return waiting.caller if waiting is not None else None

    def take(self, caller: Caller) -> int:
        """Let a caller wait from now on; return its number."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(caller, answer)
        return number

    async def of(self, number: int) -> str | None:
        """Wait for the answer: None to go on, else a sentence."""
        return await self._waiting[number].answer

    def forget(self, number: int) -> None:
        """Nobody waits by that number any more."""
        self._waiting.pop(number, None)

    def answer(self, number: int, said: str | None) -> None:
        """Give an answer; nothing happens to one who has one, or has gone."""
        waiting = self._waiting.get(number)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(said)

    def answer_all(self, said: str) -> None:
        """Give all who wait the same answer."""
        for number in list(self._waiting):
            self.answer(number, said)

    async def let_go_on(self, numbers: Sequence[int]) -> None:
        """Let these go on, a few in each turn of the loop.

        Were it thousands at once, the first bind would be sent after the last of them
        has begun, and the API server would have nothing to do until then.
        """
        for first in range(0, len(numbers), _AT_ONCE):
            for number in numbers[first : first + _AT_ONCE]:
                self.answer(number, None)
            await asyncio.sleep(0)
