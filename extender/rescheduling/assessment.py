"""Assessments of jobs whose pods have chips with faults, and their sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from extender.gang.fault_policy import Switch
from extender.rescheduling.moves import KeptPlace
from scheduler_core.node import chips
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
    #: whether pods go, with `--rescheduling evict`; else they only would
    is_evicting: bool = False
    #: how they end
    switch: Switch = Switch.GRACE
    #: controller of a pod that is a job by itself; "" for a job
    owner: str = ""
    #: pods that go, in that order, and places of their successors; if evicting
    kept_places: tuple[KeptPlace, ...] = ()
    #: UIDs of pods of which is to be read first what evicting them together does;
    #: then nothing is decided yet
    unread: frozenset[str] = frozenset()

    @property
    def asks_budgets(self) -> bool:
        """Whether no pod may go before budgets allow all pods of the job to go."""
        return self.rung is Rung.JOB and self.switch is Switch.GRACE

    @property
    def news(self) -> tuple[object, ...]:
        """What a pod is told again if it differs; places may change each second."""
        why = self.why if self.word is Word.STAYS else ""
        return self.word, self.leaving, why, self.remarks

    @property
    def text(self) -> str:
        """The assessment as sentences, for people; "" if the job does not ask."""
        text = self._decision if self.is_evicting else self._proposal
        return ". ".join((text, *self.remarks))

    @property
    def _proposal(self) -> str:
        """What would be done, with `--rescheduling report`."""
        match self.word:
            case Word.MOVES:
                text = (
                    f"With evictions, {self.rung} would go ({_list(self.leaving)}). "
                    f"Found places: {self._listed_places}"
                )
                if self._returning:
                    text = (
                        f"{text}; {self._returning} would return to their nodes and "
                        "chips"
                    )
                return f"{text}. {_NOTHING}"
            case Word.SHRINKS:
                return (
                    f"With evictions, {_list(self.leaving)} would go, and its job go "
                    f"on without a replacement: {self.why}. {_NOTHING}"
                )
            case Word.NO_SPARE:
                return (
                    "Even with evictions no pod would go, for lack of a place: "
                    f"{self.why}. Free chips, or add a node. {_DELETE}"
                )
            case Word.STAYS:
                return f"Even with evictions no pod would go: {self.why}. {_DELETE}"
            case _:
                return self.why

    @property
    def _decision(self) -> str:
        """What is done, with `--rescheduling evict`."""
        match self.word:
            case Word.MOVES:
                text = (
                    f"By evictions {self.rung} go ({_list(self.leaving)}). Places: "
                    f"{self._listed_places}"
                )
                if self._returning:
                    text = f"{text}; {self._returning} return to their nodes and chips"
                return text
            case Word.SHRINKS:
                return (
                    f"By evictions {_list(self.leaving)} go, and the job goes on "
                    f"without a replacement: {self.why}"
                )
            case Word.NO_SPARE:
                return (
                    f"No pod goes, for lack of a place: {self.why}. Free chips, or add "
                    f"a node. {_DELETE}"
                )
            case Word.STAYS:
                return f"No pod goes: {self.why}. {_DELETE}"
            case _:
                return self.why

    @property
    def _listed_places(self) -> str:
        return _list([f"{pod} on {place}" for pod, place in self.places.items()])

    @property
    def _returning(self) -> int:
        return len(self.leaving) - len(self.places)


def describe_fault(fault: ChipFault | None) -> str:
    """Return which chip of a pod is broken, for the beginning of a sentence.

    None is a pod of a job that goes as a whole, whose kept place was lost.
    """
    if fault is None:
        return "this pod goes with its job, and the place kept for it was lost"
    codes = ",".join(fault.codes)
    words = " ".join(filter(None, (fault.level or "level unknown", codes)))
    return f"chip {fault.chip} of this pod is broken ({words})"


def describe_eviction(place: KeptPlace, cause: str) -> str:
    """Return why a pod is evicted, and where its successor goes.

    Args:
        cause: Which chip of the pod is broken; "" if none, or if it is not known.
    """
    why = cause or "a chip of its job is broken"
    if not place.is_kept:
        return f"evicted: {why}. Its job goes on without a replacement"
    return f"evicted: {why}. {describe_chips(place)} are kept for its successor"


def describe_chips(place: KeptPlace) -> str:
    """Return node and chips of a kept place."""
    return f"chips {','.join(map(str, chips.ids_of(place.chips)))} of {place.node}"


def _list(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _LISTED
    listed = ", ".join(names[:_LISTED])
    return f"{listed} and {more} more" if more > 0 else listed
