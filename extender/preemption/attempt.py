"""How is room made for a pod or a job of higher priority, step by step?

Nobody is evicted before the API server has said of every victim that it may go; then
the chips are kept for whom they are freed until it has been placed, or time is over.

    phase    what happens                          what follows
    -------  ------------------------------------  -----------------------------------
    -        Begun                                 asking: chips kept, each victim is
                                                   asked for; leaving, if all who are
                                                   in the way are ending already
    asking   Answered yes or gone, the last        leaving: all are evicted
    asking   Answered budget                       over; that pod is spared for a while
    asking   Answered failed                       over; rests a little
    leaving  Answered yes                          people are told
    leaving  Answered budget or failed             evicted again, a little later
    leaving  Cleared                               ready: the scheduler tries again
    any      Over                                  over: it has a place, or has gone
    asking   Ticked, too late                      over; rests a little
    leaving  Ticked, too late                      over; rests long; people are told
    ready    Ticked, too late                      over; rests long

Pure: `step` changes the book and returns what is to be done; who does it is `evictor`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from scheduler_core.node import chips


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    #: until the API server has said of all victims whether they may go
    ask_s: float = 15.0
    #: until all chips are free, from the first eviction on
    leave_s: float = 300.0
    #: until the scheduler comes for them
    ready_s: float = 60.0
    #: after a refusal in the middle, or a failure
    again_s: float = 5.0
    #: for so long a pod whose budget has refused is no victim
    spared_s: float = 60.0
    #: for so long no room is made for whom it could not be made, or did not come
    rest_s: float = 300.0


class Phase(StrEnum):
    """How far a room is; the value is what people read."""

    ASKING = "asked for"
    LEAVING = "being freed"
    READY = "free"


class Outcome(StrEnum):
    """What the API server says to an eviction; labels in metrics."""

    YES = "evicted"
    GONE = "gone"
    BUDGET = "budget"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod that is to go."""

    uid: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The pod for a sentence."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Chips that are to be free, for whom, and who goes for it."""

    #: UID of the pod, or the job
    owner: str
    #: of the pod or the job, for sentences
    title: str
    priority: int
    #: whose chips they are
    resource: str
    #: {node: mask}; those that are free already, too
    chips: Mapping[str, int]
    #: the most important first
    victims: tuple[Victim, ...]

    @property
    def named(self) -> str:
        """The victims for a sentence: the first three by name, and how many more."""
        names = [victim.title for victim in self.victims]
        more = len(names) - 3
        listed = ", ".join(names[:3])
        return f"{listed} and {more} more" if more > 0 else listed

    @property
    def said(self) -> str:
        """Which chips are kept, and who leaves for it: for whoever looks at the pod."""
        listed = ", ".join(
            f"{','.join(map(str, chips.ids_of(mask)))} of {node}"
            for node, mask in sorted(self.chips.items())
        )
        who = f", which {self.named} must leave" if self.victims else ""
        return f"chips {listed} are kept for it{who}"


@dataclass(slots=True, kw_only=True)
class Making:
    """A room on its way."""

    room: Room
    phase: Phase
    until_s: float
    #: UIDs of victims of which the API server has not answered yet
    open: set[str]
    #: {uid: when it is evicted again}
    again: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Book:
    """All rooms on their way, and what has been learnt from those before."""

    #: {owner: room}
    making: dict[str, Making] = field(default_factory=dict)
    #: {uid of a pod that may not go: until when it is not asked again}
    spared: dict[str, float] = field(default_factory=dict)
    #: {owner: no room is made for it before}
    resting: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """It has been decided whom to evict."""

    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The API server has answered to the eviction of a victim, or its rehearsal."""

    owner: str
    uid: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """All chips of a room are free but for that they are kept."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Its room is no longer needed, or now in its hands."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed."""


Event = Begun | Answered | Cleared | Over | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Give these chips to nobody else."""

    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The chips that were kept are anybody's."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Evict a pod, or ask only whether it could be."""

    owner: str
    victim: Victim
    rehearse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Say on those for whom room is made that it is."""

    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class TellVictim:
    """Say on a pod why it goes."""

    room: Room
    victim: Victim


@dataclass(frozen=True, slots=True, kw_only=True)
class TellInVain:
    """Say on those for whom room was made that it was not done in time."""

    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """Have the scheduler try pods again."""


Effect = Keep | GiveUp | Evict | Announce | TellVictim | TellInVain | Wake
Effects = Iterator[Effect]


def step(book: Book, event: Event, now_s: float, limits: Limits) -> tuple[Effect, ...]:
    """Let one thing happen.

    Args:
        book: Changed in place.
        event: What happened; of a room that is not there, nothing follows.
        now_s: Seconds since the epoch.
        limits: How long things may take.

    Returns:
        What is to be done, in order.
    """
    match event:
        case Begun(room=room):
            return tuple(_begun(book, room, now_s, limits))
        case Ticked():
            return tuple(_ticked(book, now_s, limits))
        case Answered() | Cleared() | Over():
            making = book.making.get(event.owner)
            if making is None:
                return ()
            return tuple(_of_one(book, making, event, now_s, limits))
        case _:
            assert_never(event)


def _begun(book: Book, room: Room, now_s: float, limits: Limits) -> Effects:
    if room.owner in book.making:
        return
    is_asking = bool(room.victims)
    book.making[room.owner] = Making(
        room=room,
        phase=Phase.ASKING if is_asking else Phase.LEAVING,
        until_s=now_s + (limits.ask_s if is_asking else limits.leave_s),
        open={victim.uid for victim in room.victims},
    )
    yield Keep(room=room)
    for victim in room.victims:
        yield Evict(owner=room.owner, victim=victim, rehearse=True)


def _of_one(
    book: Book,
    making: Making,
    event: Answered | Cleared | Over,
    now_s: float,
    limits: Limits,
) -> Effects:
    match event:
        case Answered() if event.uid in making.open:
            making.open.discard(event.uid)
            if making.phase is Phase.ASKING:
                yield from _asked(book, making, event, now_s, limits)
            elif event.outcome in (Outcome.BUDGET, Outcome.FAILED):
                making.again[event.uid] = now_s + limits.again_s
            elif event.outcome is Outcome.YES:
                victim = _victim(making.room, event.uid)
                yield TellVictim(room=making.room, victim=victim)
        case Cleared() if making.phase is Phase.LEAVING:
            making.phase = Phase.READY
            making.until_s = now_s + limits.ready_s
            yield Wake()
        case Over():
            yield _end(book, making)
        case _:
            pass  # a late answer, or no news


def _asked(
    book: Book, making: Making, event: Answered, now_s: float, limits: Limits
) -> Effects:
    if event.outcome is Outcome.BUDGET:
        book.spared[event.uid] = now_s + limits.spared_s
        yield _end(book, making)
        yield Wake()  # perhaps others can go
    elif event.outcome is Outcome.FAILED:
        book.resting[event.owner] = now_s + limits.again_s
        yield _end(book, making)
    elif not making.open:
        room = making.room
        making.phase = Phase.LEAVING
        making.until_s = now_s + limits.leave_s
        making.open = {victim.uid for victim in room.victims}
        yield Announce(room=room)
        for victim in room.victims:
            yield Evict(owner=room.owner, victim=victim, rehearse=False)


def _ticked(book: Book, now_s: float, limits: Limits) -> Effects:
    for making in list(book.making.values()):
        if now_s >= making.until_s:
            is_long = making.phase is not Phase.ASKING
            pause_s = limits.rest_s if is_long else limits.again_s
            book.resting[making.room.owner] = now_s + pause_s
            yield _end(book, making)
            if making.phase is Phase.LEAVING:
                yield TellInVain(room=making.room)
            continue
        for uid in [uid for uid, at_s in making.again.items() if now_s >= at_s]:
            del making.again[uid]
            making.open.add(uid)
            victim = _victim(making.room, uid)
            yield Evict(owner=making.room.owner, victim=victim, rehearse=False)
    over = [*_drop_over(book.spared, now_s), *_drop_over(book.resting, now_s)]
    if over:
        yield Wake()


def _drop_over(until: dict[str, float], now_s: float) -> list[str]:
    over = [key for key, end_s in until.items() if now_s >= end_s]
    for key in over:
        del until[key]
    return over


def _end(book: Book, making: Making) -> GiveUp:
    del book.making[making.room.owner]
    return GiveUp(owner=making.room.owner)


def _victim(room: Room, uid: str) -> Victim:
    return next(victim for victim in room.victims if victim.uid == uid)
