"""A libdcmi each of whose calls can fail, hang and be late; it notes what it answered.

What it notes is the truth with which tests compare what the agent makes of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf
from typing import Protocol

from agent.devices.dcmi.library import (
    ABSENT,
    LEFT_OUT,
    NOT_EXIST,
    NOT_READY,
    CallError,
)
from agent.devices.dcmi.progress import Call
from agent.devices.dcmi.reader import DROPPED
from agent.devices.dcmi.values import Identity
from tests.agent.devices.played_library import ANY, PlayedLibrary
from tests.agent.devices.scripted_library import FUNCTIONS


class Word(Enum):
    """What a look has told of a chip."""

    TOLD = auto()  #: its codes
    RUDE = auto()  #: an error, or nothing yet
    LEFT_OUT = auto()  #: it was not asked
    GONE = auto()  #: that there is no such chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the last look of a worker has told of one chip."""

    word: Word
    codes: tuple[int, ...] = ()
    #: whether its processes were told; None: that it never has any
    has_pids: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A call does not come back for some time."""

    for_s: float = inf
    is_once: bool = True


class Caller(Protocol):
    """The worker process that makes a call."""

    answers: dict[int, Answer]

    def leave_out(self, call: Call) -> bool:
        """Whether the agent has told it to skip a call."""

    def begin(self, call: Call) -> None:
        """Show the agent that it makes a call."""

    def end(self) -> None:
        """Show the agent that the call has come back."""

    def after_call(self) -> None:
        """Go on; before the next call, others may be made."""

    def wait(self, for_s: float) -> None:
        """Let time pass within the call."""


@dataclass
class Truth:
    """What workers have told the agent of each chip, and what went wrong."""

    #: {chip: what the last look that was handed on has told}
    answers: dict[int, Answer] = field(default_factory=dict)
    #: {chip: when such a look has told its codes last}
    told_s: dict[int, float] = field(default_factory=dict)
    #: {chip: when such a look has told that there is no such chip last}
    gone_s: dict[int, float] = field(default_factory=dict)
    #: {(chip, code): when such a look has told that code last}
    codes_s: dict[tuple[int, int], float] = field(default_factory=dict)
    #: when there was such a look last
    looked_s: float = -inf
    #: {chip: when a question for its codes or health went wrong last}
    rude_s: dict[int, float] = field(default_factory=dict)
    #: {call: how often it did not come back}
    hung: Counter[Call] = field(default_factory=Counter)


class RudeLibrary(PlayedLibrary):
    """A library that is as rude as the test says."""

    caller: Caller

    def __init__(
        self, chips: Iterable[Identity], *, now_s: Callable[[], float]
    ) -> None:
        super().__init__(chips)
        self.truth = Truth()
        #: {(method, physical id or ANY): how it hangs}
        self.hangs: dict[tuple[str, int], Hang] = {}
        #: for which `dcmi_init` lasts, and what it answers
        self.load_s = 0.0
        self.load_error = 0
        #: whether cards that come later are listed only once it is loaded anew
        self.lists_at_load = False
        #: what it answers about a card that is out, and about one that has come since
        #: it was loaded if it lists only those of then; None: as usual
        self.away_error: int | None = None
        #: {card that the list lacks although it is in: whether once only}
        self.left_off: dict[int, bool] = {}
        #: whether killed workers within a call go on until that call ends
        self.is_in_kernel = False
        #: whether it calls back when a fault begins or ends
        self.has_events = False
        self._listed_at_load = self.present
        self._now_s = now_s

    @property
    def present(self) -> tuple[int, ...]:
        """The numbers of the cards that are in, ascending."""
        return tuple(sorted({card for card, _ in self.chips}))

    def load(self) -> None:
        """Begin anew: what cards there are is found out now."""
        self._listed_at_load = self.present

    def cards(self) -> tuple[tuple[int, ...], int]:
        with self._called("cards", -1, -1):
            error = self.errors.get(("cards", ANY))
            if error is not None:
                raise CallError(Call(function="cards"), error)
            present = self.present
            if self.lists_at_load:
                present = tuple(
                    card for card in present if card in self._listed_at_load
                )
            listed = tuple(card for card in present if card not in self.left_off)
            for card in [card for card, is_once in self.left_off.items() if is_once]:
                del self.left_off[card]
            return listed, self.unnamed

    def device_count(self, card: int) -> int:
        self._chip("device_count", card, 0)
        return 1

    def codes(self, card: int, device: int) -> tuple[int, ...]:
        self.caller.answers[card] = Answer(word=Word.RUDE)
        try:
            codes = super().codes(card, device)
        except CallError as error:
            word = {NOT_EXIST: Word.GONE, LEFT_OUT: Word.LEFT_OUT}.get(error.code)
            self._note(card, word or Word.RUDE)
            raise
        self._note(card, Word.TOLD, codes)
        return codes

    def check_ready(self, card: int, device: int) -> None:
        answer = self.caller.answers[card]
        try:
            super().check_ready(card, device)
        except CallError as error:
            if error.code == NOT_READY:
                self._note(card, Word.TOLD, (*answer.codes, DROPPED))
            elif error.code == LEFT_OUT and answer.word is not Word.GONE:
                self._note(card, Word.LEFT_OUT)
            raise

    def pids(self, card: int, device: int) -> tuple[int, ...]:
        answers = self.caller.answers
        try:
            pids = super().pids(card, device)
        except CallError as error:
            if error.code in ABSENT:
                answers[card] = replace(answers[card], has_pids=None)
            raise
        answers[card] = replace(answers[card], has_pids=True)
        return pids

    def _note(self, chip: int, word: Word, codes: tuple[int, ...] = ()) -> None:
        self.caller.answers[chip] = Answer(word=word, codes=codes)
        if word in {Word.RUDE, Word.GONE}:
            self.truth.rude_s[chip] = self._now_s()

    def _chip(self, function: str, card: int, device: int) -> Identity:
        with self._called(function, card, device):
            is_in = card in self.present and (
                card in self._listed_at_load or not self.lists_at_load
            )
            if self.away_error is not None and not is_in:
                call = Call(function=function, card=card, device=device)
                raise CallError(call, self.away_error)
            return super()._chip(function, card, device)

    @contextmanager
    def _called(self, function: str, card: int, device: int) -> Iterator[None]:
        """Make a call, which may last.

        A killed worker raises from `wait`, and has nothing to show any more.
        """
        call = Call(function=FUNCTIONS[function][0], card=card, device=device)
        if self.caller.leave_out(call):
            raise CallError(call, LEFT_OUT)
        caller = self.caller
        caller.begin(call)
        for key in ((function, card), (function, ANY)):
            if key in self.hangs:
                hang = self.hangs[key]
                if hang.is_once:
                    del self.hangs[key]
                self.truth.hung[call] += 1
                if function in {"codes", "check_ready"}:
                    self.truth.rude_s[card] = self._now_s()
                caller.wait(hang.for_s)
                self.caller = caller
                break
        try:
            yield
        finally:
            caller.end()
            caller.after_call()
