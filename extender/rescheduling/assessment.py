"""Assessments of jobs whose pods have chips with faults, and their sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler_core.rescheduling.ladder import Rung
from scheduler_core.wire.chip_faults import ChipFault

#: Names, and places, in one sentence.
_LISTED = 3


class Word(StrEnum):
    """Kind of an assessment; documents show the values."""

    #: the job does not ask to be moved
    UNASKED = "not asked"
    #: it is not known yet what the job would need
    UNKNOWN = "unknown"
    #: the job asks for something else, or for something that is not understood
    STAYS = "stays"
    #: pods would go, and each has a place
    MOVES = "moves"
    #: fault pods would go, and the job would go on without them
    SHRINKS = "shrinks"
    #: no pod would go, because not all have a place
    NO_SPARE = "no spare"


#: {assessment of which pods are told: reason of the event}
REASONS: Mapping[Word, str] = {
    Word.STAYS: "AscendNotMoved",
    Word.MOVES: "AscendWouldMove",
    Word.SHRINKS: "AscendWouldMove",
    Word.NO_SPARE: "AscendNoSpare",
}
#: What to do, at the end of sentences.
_DELETE = "If the pod cannot go on, delete it, or have its job restart it"
_NOTHING = f"--rescheduling report evicts nothing. {_DELETE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Which pods of a job would go because of faults, and where to, as things are."""

    word: Word
    #: why the pods stay, or what is missing; "" if the word says it
    why: str = ""
    #: pods that would go together, of an assessment `MOVES`
    rung: Rung | None = None
    #: names of the pods that would go, in that order
    leaving: tuple[str, ...] = ()
    #: {name: node and chips} of those among them that would get another place
    places: Mapping[str, str] = field(default_factory=dict)
    #: what the job says to no effect, in sentences
    remarks: tuple[str, ...] = ()

    @property
    def news(self) -> tuple[object, ...]:
        """What a pod is told again if it differs; places may change each second."""
        why = self.why if self.word is Word.STAYS else ""
        return self.word, self.leaving, why, self.remarks

    @property
    def text(self) -> str:
        """The assessment as sentences, for people; "" if the job does not ask."""
        match self.word:
            case Word.MOVES:
                text = f"{self._describe_move()}. {_NOTHING}"
            case Word.SHRINKS:
                text = (
                    f"With evictions, {_list(self.leaving)} would go, and its job go "
                    f"on without a replacement: {self.why}. {_NOTHING}"
                )
            case Word.NO_SPARE:
                text = (
                    "Even with evictions no pod would go, for lack of a place: "
                    f"{self.why}. Free chips, or add a node. {_DELETE}"
                )
            case Word.STAYS:
                text = f"Even with evictions no pod would go: {self.why}. {_DELETE}"
            case _:
                text = self.why
        return ". ".join((text, *self.remarks))

    def _describe_move(self) -> str:
        places = _list([f"{pod} on {place}" for pod, place in self.places.items()])
        text = (
            f"With evictions, {self.rung} would go ({_list(self.leaving)}). "
            f"Found places: {places}"
        )
        returning = len(self.leaving) - len(self.places)
        if not returning:
            return text
        return f"{text}; {returning} would return to their nodes and chips"


def describe_fault(fault: ChipFault) -> str:
    """Return which chip of a pod is broken, for the beginning of a sentence."""
    codes = ",".join(fault.codes)
    words = " ".join(filter(None, (fault.level or "level unknown", codes)))
    return f"chip {fault.chip} of this pod is broken ({words})"


def _list(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _LISTED
    listed = ", ".join(names[:_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed
