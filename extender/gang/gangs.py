"""Which pods are one job, and how far is each job: gathering, planned, being bound?

The book of all jobs of several pods. Owner: the cache, which tells it of pods; the gate
(`permit.step`) moves its jobs on. Source of truth for members: the API server; a
restart reads them anew and forgets plans, which nothing has been told of yet.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from extender.gang.membership import Seat, Told
from extender.gang.size import Size
from scheduler_core.topology.leaves import asks_leaves
from scheduler_core.wire.pods import NpuPod


class Phase(StrEnum):
    """How far a job is; the value is what people read."""

    #: no chips are kept for it
    IDLE = "waiting"
    #: its pods have chips, and the gate is closed until all have come
    HELD = "planned"
    #: all had come: its pods are being bound, or one was bound before
    OPEN = "being bound"


@dataclass(slots=True, kw_only=True)
class Gang:
    """One job of several pods."""

    job: str
    told: Told | None = None
    #: {uid: seat} of pods that ask for NPUs and have not failed
    seats: dict[str, Seat] = field(default_factory=dict)
    #: of those, the ones that have a node, or have succeeded
    seated: set[str] = field(default_factory=set)
    #: of those, the ones that are being deleted
    ending: set[str] = field(default_factory=set)
    #: UIDs of its pods without NPUs
    others: set[str] = field(default_factory=set)
    #: None: not known yet
    size: Size | None = None
    #: why the size is not known
    problem: str = ""

    phase: Phase = Phase.IDLE
    #: {uid: node} of pods that have a place and no node yet
    places: dict[str, str] = field(default_factory=dict)
    #: {uid: number of the bind call that waits at the gate}
    came: dict[str, int] = field(default_factory=dict)
    #: pods that the gate let through and whose binds have not ended
    going: set[str] = field(default_factory=set)
    #: when what the phase waits for must have happened
    until_s: float = 0.0
    #: when the gate was opened
    open_s: float = 0.0
    #: whether people were told that it is bound in part
    is_told: bool = False

    #: how often it has been planned and did not get through, in a row
    failures: int = 0
    #: it is not planned before
    again_s: float = 0.0
    #: {node: until when it is not planned there}
    avoid: dict[str, float] = field(default_factory=dict)
    #: pods whose planned node was once missing from a list of one node
    missed: set[str] = field(default_factory=set)
    #: whether its binds wait for each other here; Volcano has a gate of its own
    is_gated: bool = True
    #: since when it is whole and has no place; None: it has, or is not whole
    waits_s: float | None = None
    #: why it has no place
    said: str = ""

    @property
    def missing(self) -> int:
        """How many of its pods do not exist yet."""
        if self.size is None:
            return 0
        there = len(self.seats) - len(self.ending)
        if self.size.counts_all:
            there += len(self.others)
        return max(self.size.count - there, 0)

    @property
    def is_being_read(self) -> bool:
        """Whether its size is not known yet, and will be in a moment."""
        return self.size is None and not self.problem

    @property
    def is_several(self) -> bool:
        """Whether it is planned as a whole; unknown is taken for so.

        One pod is if it asks for switch affinity: where it goes depends on the others.
        """
        return self.size is None or self.size.count > 1 or self._asks_leaves

    @property
    def is_one(self) -> bool:
        """Whether it is known to be a job of one pod."""
        return self.size is not None and self.size.count == 1

    @property
    def _asks_leaves(self) -> bool:
        return any(asks_leaves(s.traits.labels) for s in islice(self.seats.values(), 1))

    @property
    def unseated(self) -> list[str]:
        """UIDs of the pods that need a place, by rank as far as that is told."""
        some = self.seats.keys() - self.seated - self.ending
        return sorted(some, key=self.place_in_order)

    @property
    def unseated_count(self) -> int:
        """How many pods need a place: asked with each filter, of thousands."""
        if not self.seated and not self.ending:
            return len(self.seats)
        return len(self.seats.keys() - self.seated - self.ending)

    def lets_through(self, uid: str) -> bool:
        """Whether a pod's bind has a plan, and no others to wait for."""
        return uid in self.places and (self.phase is Phase.OPEN or bool(self.seated))

    def place_in_order(self, uid: str) -> tuple[int, object, str]:
        """Its place among the job's pods: by rank, then by role and number."""
        seat = self.seats[uid]
        rank = seat.membership.rank
        if rank is not None:
            return rank, (), seat.name
        return 1 << 30, seat.membership.order, seat.name

    def turn(self, pods: Mapping[str, NpuPod]) -> tuple[int, str, str]:
        """Its place among jobs: by priority, then age, then UID."""
        found = [
            (-seat.priority, pods[uid].created, uid)
            for uid, seat in self.seats.items()
            if uid in pods
        ]
        return min(found, default=(0, "", ""))

    def named(self, uids: Collection[str]) -> str:
        """These pods for a sentence: the first three by name, and how many more."""
        names = sorted(self.seats[uid].name for uid in uids if uid in self.seats)
        more = len(uids) - 3
        listed = ", ".join(names[:3])
        return f"{listed} and {more} more" if more > 0 else listed

    @property
    def state(self) -> str:
        """How far it is, for people."""
        of = "an unknown number of" if self.size is None else str(self.size.count)
        there = f"{len(self.seats)} of {of} pods exist, {len(self.seated)} have a node"
        why = f": {self.said}" if self.said and self.phase is Phase.IDLE else ""
        return f"{self.phase.value}, {there}{why}"

    @property
    def title(self) -> str:
        """The job for a sentence."""
        kind, _, name = self.job.partition("/")
        return f"{kind} {name}"


class Gangs:
    """All jobs of several pods.

    Invariant: `job_of` has each pod of each job's `seats` and `others`, and a job
    without pods is forgotten.
    """

    def __init__(self) -> None:
        """Know of no job."""
        self.jobs: dict[str, Gang] = {}
        #: {uid: its job}
        self.job_of: dict[str, str] = {}
        #: jobs of which something has changed that a plan depends on
        self.changed: set[str] = set()

    def of(self, uid: str) -> Gang | None:
        """The job of a pod; None for a pod that is a job by itself."""
        gang = self.jobs.get(self.job_of.get(uid, ""))
        return gang if gang is not None and gang.is_several else None

    def put(self, uid: str, seat: Seat, *, seated: bool, ending: bool) -> None:
        """Take in a pod that asks for NPUs and has not failed."""
        gang = self._gang(uid, seat.membership.job)
        is_news = uid not in gang.seats or ending is not (uid in gang.ending)
        gang.seats[uid] = seat
        gang.told = gang.told or seat.membership.told
        if gang.told is None and seat.membership.size is not None:
            gang.size = Size(count=seat.membership.size)
        (gang.seated.add if seated else gang.seated.discard)(uid)
        (gang.ending.add if ending else gang.ending.discard)(uid)
        if is_news:
            self.changed.add(gang.job)

    def put_other(self, uid: str, job: str) -> None:
        """Take in a pod that asks for no NPUs, of a job or ("") of none."""
        if self.job_of.get(uid, job) != job:
            self.drop(uid)
        if not job:
            return
        gang = self._gang(uid, job)
        if uid not in gang.others:
            gang.others.add(uid)
            self.changed.add(job)

    def drop(self, uid: str) -> None:
        """Forget a pod that has failed or gone."""
        job = self.job_of.pop(uid, "")
        gang = self.jobs.get(job)
        if gang is None:
            return
        gang.seats.pop(uid, None)
        gang.places.pop(uid, None)
        gang.missed.discard(uid)
        for some in (gang.seated, gang.ending, gang.others, gang.going):
            some.discard(uid)
        if not gang.seats and not gang.others and not gang.came:
            del self.jobs[job]

    def read(self, job: str, size: Size | None, problem: str) -> None:
        """Note what the object that made a job says of its size."""
        gang = self.jobs.get(job)
        if gang is None:
            return
        said = [seat.membership for seat in gang.seats.values()]
        of_pods = next((m for m in said if m.size is not None), None)
        if size is None and of_pods is not None and of_pods.size is not None:
            size = Size(count=of_pods.size, counts_all=of_pods.counts_all)
        if size != gang.size:
            self.changed.add(job)
        gang.size = size
        gang.problem = "" if size is not None else problem

    def counts(self) -> Mapping[Phase, int]:
        """How many jobs are how far."""
        found = dict.fromkeys(Phase, 0)
        for gang in self.jobs.values():
            found[gang.phase] += gang.is_several
        return found

    def _gang(self, uid: str, job: str) -> Gang:
        self.job_of[uid] = job
        return self.jobs.setdefault(job, Gang(job=job))
