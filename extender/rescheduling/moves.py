"""Moves of jobs after faults: which pods go, the places kept for their successors.

Values, events and effects. `machine` has the transitions, `record` the text in which a
move outlives the extender.

A place is known by the UID of the pod that goes: several pods of a job may have one
slot, if its controller numbers none.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from extender.gang.fault_policy import Switch
from extender.gang.parts import Number
from extender.preemption.attempt import Outcome
from extender.rescheduling.ends import End

#: role and number of a pod, as `Membership.place`; equal for a pod and its successor
Slot = tuple[str, Number]
#: (node, resource, mask of the chips) with faults
Faults = tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Pauses and times, in seconds, and numbers."""

    #: between two assessments of a job that changes; doubles without news
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    #: jobs that are judged in one tick; each may cost some hundred milliseconds
    at_once: int = 4
    #: whether pods are evicted; else they are told only
    is_evicting: bool = False
    #: whether evictions stop while very many nodes have faults
    is_braking: bool = True
    #: nodes with faults due within `brake_s` beyond which they stop: the larger number
    brake_nodes: int = 5
    brake_share: float = 0.1
    brake_s: float = 60.0
    #: evictions without an answer at one time, of all jobs; those, the binds and the
    #: watches leave connections for the Lease
    most_asks: int = 6
    #: between two evictions of a pod; doubles from `first_pause_s` on
    longest_ask_s: float = 60.0
    #: from the first eviction of a pod until it is deleted with grace 0
    grace_s: float = 900.0
    #: how long places are kept while nothing of the move happens
    keep_s: float = 900.0
    #: how long a controller may take to end the other pods
    controller_s: float = 60.0
    #: how long a move is remembered: nodes of its faults are avoided, and the next
    #: moves of the job wait
    memory_s: float = 600.0
    #: moves within that time for the same chip
    most_moves: int = 3
    #: between the first two moves; doubles
    first_move_s: float = 30.0
    longest_move_s: float = 600.0
    #: attempts to write a record, and how long one step may wait for its answer
    most_writes: int = 3
    answer_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlace:
    """A pod that goes, and node and chips of its successor."""

    #: of the pod that goes
    uid: str
    name: str
    namespace: str
    slot: Slot
    #: controller that gives the slot, as `Generation.line`; "" if the job has one line
    line: str = ""
    resource: str
    #: where the successor goes; "" for a pod of an elastic job that gets none
    node: str = ""
    #: mask
    chips: int = 0
    #: node that the pod leaves
    home: str = ""
    #: further annotations of the successor's claim: rank, SuperPoD, leaf switch
    annotations: Mapping[str, str] = field(default_factory=dict)
    #: whether it is evicted; else its controller ends it with those that are
    is_evicted: bool = True

    @property
    def is_kept(self) -> bool:
        """Whether there are chips for a successor."""
        return bool(self.node)


class Stage(StrEnum):
    """Stage of a move, or of what a later fault adds to it."""

    #: the objects of the pods' controllers are being read
    ENDS = "asking what evictions do"
    #: chips are being reserved
    KEEPING = "keeping places"
    #: the record is being written
    WRITING = "writing its record"
    #: pods end, and their successors come
    MOVING = "moving"
    #: over; only its history is left
    RESTING = "over"


class Step(IntEnum):
    """How far a pod that goes is."""

    #: not asked to go yet
    STAYS = 0
    #: its eviction was sent, or is sent again and again
    ASKED = 1
    #: its eviction has succeeded
    LEAVING = 2
    #: the pod is gone; its successor is awaited
    GONE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A pod that goes. It ends when its successor is bound, or its place is lost."""

    place: KeptPlace
    step: Step = Step.STAYS
    #: when it was asked first; 0.0 if it was not
    first_ask_s: float = 0.0
    #: earliest time of the next ask, and the pause before it
    again_s: float = 0.0
    pause_s: float = 0.0
    #: what the pod was told last about its eviction
    news: str = ""
    #: whether its place was lost, though its whole job goes: it waits for another
    is_homeless: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether the pod was asked to go, is gone, or has to follow those."""
        return self.step is not Step.STAYS or self.is_homeless


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Faults for which pods of a job went: for the limit of moves, and to avoid."""

    at_s: float
    faults: Faults

    def shares_chip(self, faults: Faults) -> bool:
        """Whether a chip is among the faults of both."""
        return any(
            mine[:2] == other[:2] and mine[2] & other[2]
            for mine in self.faults
            for other in faults
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """What outlives the extender of a move: the content of its ConfigMap."""

    #: key of the job, or UID of a pod that is a job by itself
    job: str
    #: "kind/namespace/name" of the controller of a pod that is a job by itself, by
    #: which its successor is known; "" for a job
    owner: str = ""
    switch: Switch = Switch.GRACE
    #: whether all pods of the job go
    is_whole: bool = False
    #: in the order in which they go; without those whose successors are bound
    places: tuple[KeptPlace, ...] = ()
    #: {UID: first ask} of the pods that were asked to go
    asked_s: Mapping[str, float] = field(default_factory=dict)
    history: tuple[Past, ...] = ()
    #: as `End.controller`, of its pods
    controllers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one job, from the first question until it is forgotten."""

    #: key of the job, or UID of a pod that is a job by itself
    job: str
    #: as in `MoveRecord`
    owner: str = ""
    switch: Switch = Switch.GRACE
    stage: Stage = Stage.RESTING
    #: when the stage began
    stage_s: float = 0.0
    #: {UID: pod that goes}, in that order
    departures: Mapping[str, Departure] = field(default_factory=dict)
    #: UIDs of those that are to be asked first, in that order; some may be gone
    queue: tuple[str, ...] = ()
    #: UIDs with an eviction that is not answered
    asking: frozenset[str] = frozenset()
    #: {UID of a fault pod for which pods go: which fault, for people}
    causes: Mapping[str, str] = field(default_factory=dict)
    #: whether all pods of the job go
    is_whole: bool = False
    #: whether they do once places are kept and recorded
    adds_all: bool = False
    #: when budgets first refused to let it begin, if they have for `grace_s`; else 0.0
    overdue_s: float = 0.0
    #: UIDs of pods whose ends are being read; in stage ENDS
    reading: frozenset[str] = frozenset()
    #: whether these are pods that their controller has not ended
    is_late: bool = False
    #: what was read, until places are kept
    ends: Mapping[str, End] = field(default_factory=dict)
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: places that are kept or recorded next, and the faults for which they are
    addition: tuple[KeptPlace, ...] = ()
    past: Past | None = None
    history: tuple[Past, ...] = ()
    #: whether a record may be there
    is_recorded: bool = False
    #: whether it names pods to go that stay now
    is_outdated: bool = False
    #: whether it is of an earlier leader, and nothing has been looked at since
    is_recalled: bool = False
    #: number of the record that is being written; 0 for none
    write: int = 0
    #: how often writing has failed in a row, and when it is tried again; 0.0: never
    failures: int = 0
    write_again_s: float = 0.0
    #: when anything of the move happened last
    progress_s: float = 0.0
    #: why pods are not asked now, as their job was told
    news: str = ""

    @property
    def is_open(self) -> bool:
        """Whether pods go, or are about to."""
        return self.stage is not Stage.RESTING

    @property
    def has_begun(self) -> bool:
        """Whether a pod was asked to go."""
        return any(d.has_begun for d in self.departures.values())

    @property
    def is_gathering(self) -> bool:
        """Whether all pods of the job go, or have come again, and have begun to."""
        return self.is_whole and self.has_begun

    @property
    def goes_whole(self) -> bool:
        """Whether all pods of the job go, with those that are being added."""
        if self.is_being_written:  # they may replace pods that were not asked
            return self.adds_all or self.is_gathering
        return self.is_whole

    @property
    def committed(self) -> frozenset[str]:
        """UIDs of the pods that go in any case: nothing more is to be decided."""
        is_whole = self.is_gathering
        going = (d for d in self.departures.values() if is_whole or d.has_begun)
        return frozenset(d.place.uid for d in going if not d.is_homeless)

    @property
    def has_waiting(self) -> bool:
        """Whether a pod is to be asked, for the first time or again."""
        last = Step.LEAVING
        return any(d.step < last for d in self.departures.values())

    @property
    def is_being_written(self) -> bool:
        """Whether places are being reserved, or recorded."""
        return self.stage in (Stage.KEEPING, Stage.WRITING)

    def is_to_be_written(self, now_s: float) -> bool:
        """Whether its record could not be written, and the pause after that is over."""
        return bool(self.write_again_s) and now_s >= self.write_again_s

    def covers(self, uids: Collection[str]) -> bool:
        """Whether nothing more is to be decided about pods."""
        with_place = {u for u, d in self.departures.items() if not d.is_homeless}
        return self.stage is Stage.ENDS or with_place.issuperset(uids)

    def is_gone(self, uid: str) -> bool:
        """Whether a pod of the move is gone."""
        departure = self.departures.get(uid)
        return departure is not None and departure.step is Step.GONE

    @property
    def unasked(self) -> tuple[KeptPlace, ...]:
        """Places of pods that may still stay."""
        waiting = (d.place for d in self.departures.values() if not d.has_begun)
        return *waiting, *self.addition

    @property
    def record(self) -> MoveRecord:
        """What is written of it."""
        added = (self.past,) if self.past is not None else ()
        return MoveRecord(
            job=self.job,
            owner=self.owner,
            switch=self.switch,
            is_whole=self.goes_whole,
            places=(
                *self.addition,
                *(d.place for d in self.departures.values() if not d.is_homeless),
            ),
            asked_s={
                uid: d.first_ask_s
                for uid, d in self.departures.items()
                if d.first_ask_s
            },
            history=(*self.history, *added),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """What a judge has to know besides the cluster, with `--rescheduling evict`."""

    #: nodes whose faults sent pods of the job away; they are the last choice
    avoid: frozenset[str] = frozenset()
    #: {UID: what its eviction does} of pods that were read as evicted together
    ends: Mapping[str, End] = field(default_factory=dict)
    #: {UID of such a pod: UIDs of the pods that end with it}, if its reach is a group
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: places of pods that may still stay: their chips count as free
    kept_places: tuple[KeptPlace, ...] = ()
    #: UIDs of pods that go in any case: they count as gone
    asked: frozenset[str] = frozenset()
    #: whether all pods of the job go already, so that it stands still
    is_gathering: bool = False


# -- events --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsRead:
    """The event that answers `ReadEnds`."""

    job: str
    #: as in the effect
    uids: frozenset[str]
    #: {UID of each of them: what evicting all of them together does}
    ends: Mapping[str, End] = field(default_factory=dict)
    #: {UID: UIDs of all pods that end with it, itself included}, for reach GROUP
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: why they cannot be read now; "" if they are
    problem: str = ""
    #: whether that is a budget, which was asked, too
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesKept:
    """The event that answers `KeepPlaces`."""

    job: str
    is_kept: bool
    #: who has the chips, for people
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The event that answers `WriteRecord`."""

    job: str
    #: as in the effect
    number: int
    is_written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The event that answers `EndPod`."""

    job: str
    uid: str
    outcome: Outcome
    #: of a refusal: which budget, or what went wrong
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLeaving:
    """The event that a pod of a move is being deleted; it may come repeatedly."""

    job: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnded:
    """The event that a pod of a move is gone, or has ended; it may come repeatedly."""

    job: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A place has ended: its successor is bound."""

    job: str
    #: of the pod that went
    uid: str
    #: of its successor
    successor: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceLost:
    """A place has ended: it cannot be used any more."""

    job: str
    #: of the pod that goes
    uid: str
    #: for people: "its chip 3 broke"
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesEnded:
    """The event that places of a job have ended; binds may come repeatedly.

    All that were found at once are one event: a job may have thousands.
    """

    job: str
    ends: tuple[Bound | PlaceLost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGone:
    """The event that the job is gone for good."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The event that the extender has found a record at its start.

    The cache is complete then.
    """

    record: MoveRecord
    #: pods of the record that run, and those that are being deleted; others are gone
    running: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The event that people hold evictions: of these jobs and no others, or of all."""

    jobs: frozenset[str] = frozenset()
    is_all: bool = False


MoveEvent = (
    EndsRead
    | PlacesKept
    | Written
    | Answered
    | PodLeaving
    | PodEnded
    | PlacesEnded
    | JobGone
    | Recovered
    | Held
)


# -- effects -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEnds:
    """The effect to read what evicting these pods together does; see `EndsRead`."""

    job: str
    uids: frozenset[str]
    #: whether budgets are asked, too: one that refuses is a problem of the answer
    asks_budgets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPlaces:
    """The effect to reserve the chips of places; the event `PlacesKept` answers it.

    The chips need not be free yet. All are reserved, or none, and then what was
    reserved before stays.
    """

    job: str
    #: all places that the job has from now on; they replace those of before
    places: tuple[KeptPlace, ...]
    #: after a restart: each that cannot be reserved is a `PlaceLost`, the others are
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePlaces:
    """The effect to end what is reserved for pods that go; others have it perhaps."""

    job: str
    #: UIDs of the pods that go; None is all
    uids: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """The effect to write a record; the event `Written` answers it.

    Records of one job are written one after the other, the last counts.
    """

    job: str
    number: int
    record: MoveRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecord:
    """The effect to delete a record, until that is done. Nothing answers it."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPod:
    """The effect to end a pod with its UID; the event `Answered` answers it always.

    By eviction; if `is_forced` with grace 0, and `DisruptionTarget` written before.
    """

    job: str
    uid: str
    name: str
    namespace: str
    is_forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TellJob:
    """The effect to tell the pods of a job that wait for a node; else one that runs."""

    job: str
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """The effect that a pod is told something, as an event of Kubernetes."""

    uid: str
    reason: str
    text: str


MoveEffect = (
    ReadEnds
    | KeepPlaces
    | ReleasePlaces
    | WriteRecord
    | DeleteRecord
    | EndPod
    | Tell
    | TellJob
)
