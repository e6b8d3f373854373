"""Phases of an attempt to free chips for a pod or a job by eviction.

The pod or job that the chips are freed for is the owner of the attempt. During the
attempt the chips are nominated: reserved for the owner. In phase ASKING a dry run of
each eviction is sent to the API server. If all dry runs succeed, phase LEAVING begins:
the victims are evicted. In phase READY the chips are free and wait for the owner. A
victim whose PodDisruptionBudget refuses the dry run is protected: for a while no new
attempt chooses it. An owner in back-off gets no attempt.

    phase    event                              result
    -------  ---------------------------------  --------------------------------------
    -        AttemptStarted                     ASKING: chips nominated, dry run of each
                                                eviction; LEAVING if all victims are
                                                terminating already
    ASKING   all Answered YES or GONE           LEAVING: all victims evicted
    ASKING   Answered BUDGET                    ended; that victim is protected
    ASKING   Answered FAILED                    ended; short back-off
    LEAVING  Answered YES                       Kubernetes event on the victim
    LEAVING  Answered BUDGET or FAILED          evicted again after a short pause
    LEAVING  ChipsFree                          READY: schedulers retry refused pods
    any      AttemptEnded                       ended: the owner takes the chips, or
                                                does not need them now
    ASKING   Ticked, after the limit            ended; short back-off
    LEAVING  Ticked, after the limit            ended; long back-off, Kubernetes event
                                                on the owner's unbound pods
    READY    Ticked, after the limit            ended; long back-off

`step` changes the attempts and returns effects. `preemptor` carries the effects out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from scheduler_core.node import chips


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits and pauses of eviction attempts, in seconds."""

    #: from the start until all dry runs are answered
    ask_s: float = 15.0
    #: from the first eviction until all chips are free
    leave_s: float = 300.0
    #: from free chips until filter is called for the owner
    ready_s: float = 60.0
    #: short back-off: after a failure, and between two evictions of a pod
    again_s: float = 5.0
    #: protection of a pod whose PodDisruptionBudget refused
    spared_s: float = 60.0
    #: long back-off: after an attempt that timed out
    rest_s: float = 300.0


class Phase(StrEnum):
    """Phase of an attempt to free chips. Messages for people show the values."""

    ASKING = "asked for"
    LEAVING = "being freed"
    READY = "free"


class Outcome(StrEnum):
    """Outcome of an eviction or its dry run. The values are metric labels."""

    YES = "evicted"
    GONE = "gone"
    BUDGET = "budget"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Pod chosen for eviction, with the names that the API server needs."""

    uid: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """Return `namespace/name` of the pod, for sentences."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Chips to free, the pod or job to free them for, and the pods to evict."""

    #: UID of the pod, or key of the job
    owner: str
    #: name of the pod or the job, for sentences
    title: str
    priority: int
    #: resource of the chips
    resource: str
    #: {node: mask}; includes chips that are free already
    chips: Mapping[str, int]
    #: the most important victim first
    victims: tuple[Victim, ...]

    @property
    def victim_names(self) -> str:
        """Return the names of the first three victims, and how many more there are."""
        names = [victim.title for victim in self.victims]
        more = len(names) - 3
        listed = ", ".join(names[:3])
        return f"{listed} and {more} more" if more > 0 else listed

    @property
    def text(self) -> str:
        """Return a sentence that names the chips to free and up to three victims."""
        listed = ", ".join(
            f"{','.join(map(str, chips.ids_of(mask)))} of {node}"
            for node, mask in sorted(self.chips.items())
        )
        victims_clause = (
            f", which {self.victim_names} must leave" if self.victims else ""
        )
        return f"chips {listed} are kept for it{victims_clause}"


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """Attempt that has started and not ended, with phase and unanswered evictions."""

    attempt: Attempt
    phase: Phase
    until_s: float
    #: UIDs of victims with an unanswered eviction or dry run
    unanswered: set[str]
    #: {uid: time of its next eviction}
    retry_at_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Attempts:
    """All running attempts, protected pods, and owners in back-off.

    A pod whose PodDisruptionBudget refused the dry run of an eviction is protected: for
    a while no new attempt chooses it. An owner (pod or job) in back-off gets no new
    attempt for a while.
    """

    #: {owner: its attempt}
    running: dict[str, RunningAttempt] = field(default_factory=dict)
    #: {uid: time until which the pod is no victim}
    protected: dict[str, float] = field(default_factory=dict)
    #: {owner: time until which it gets no attempt}
    backing_off: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """Event: the preemptor has chosen victims for a pod or a job."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Event: the API server has answered an eviction, or its dry run."""

    owner: str
    uid: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipsFree:
    """Event: no pod occupies the chips of an attempt any more."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """Event: the owner of an attempt takes the chips, or does not need them now."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Event: time has passed, so that limits and pauses may have run out."""


Event = AttemptStarted | Answered | ChipsFree | AttemptEnded | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominate:
    """Effect: reserve the chips of an attempt for its pod or job.

    The reservation lasts until the attempt ends.
    """

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearNomination:
    """Effect: end the reservation of an ended attempt's chips."""

    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Effect: send the eviction of a victim, or only its dry run (`rehearse`)."""

    owner: str
    victim: Victim
    rehearse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Effect: record a Kubernetes event about the evictions for an attempt.

    Each unbound pod for which chips are being freed gets the event.
    """

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyVictim:
    """Effect: record a Kubernetes event on a victim.

    The event says for which pod or job the victim is evicted.
    """

    attempt: Attempt
    victim: Victim


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyTimedOut:
    """Effect: record a Kubernetes event about the timeout of an attempt.

    Each unbound pod whose chips did not become free in time gets the event.
    """

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeScheduler:
    """Effect: make schedulers try all refused pods again."""


Effect = (
    Nominate
    | ClearNomination
    | Evict
    | Announce
    | NotifyVictim
    | NotifyTimedOut
    | WakeScheduler
)
Effects = Iterator[Effect]


def step(
    book: Attempts, event: Event, now_s: float, limits: Limits
) -> tuple[Effect, ...]:
    """Apply an event to the attempts. Return the effects, to be carried out in order.

    Args:
        book: All attempts. Changed in place.
        event: `AttemptStarted` is ignored if its owner has a running attempt.
            `Answered`, `ChipsFree` and `AttemptEnded` are ignored if their owner has
            no running attempt. An owner is a pod or job.
        now_s: Seconds since the epoch.
        limits: Time limits and pauses of attempts.
    """
    match event:
        case AttemptStarted(attempt=attempt):
            return tuple(_start(book, attempt, now_s, limits))
        case Ticked():
            return tuple(_tick(book, now_s, limits))
        case Answered() | ChipsFree() | AttemptEnded():
            running = book.running.get(event.owner)
            if running is None:
                return ()
            return tuple(_step_attempt(book, running, event, now_s, limits))
        case _:
            assert_never(event)


def _start(book: Attempts, attempt: Attempt, now_s: float, limits: Limits) -> Effects:
    if attempt.owner in book.running:
        return
    is_asking = bool(attempt.victims)
    book.running[attempt.owner] = RunningAttempt(
        attempt=attempt,
        phase=Phase.ASKING if is_asking else Phase.LEAVING,
        until_s=now_s + (limits.ask_s if is_asking else limits.leave_s),
        unanswered={victim.uid for victim in attempt.victims},
    )
    yield Nominate(attempt=attempt)
    for victim in attempt.victims:
        yield Evict(owner=attempt.owner, victim=victim, rehearse=True)


def _step_attempt(
    book: Attempts,
    running: RunningAttempt,
    event: Answered | ChipsFree | AttemptEnded,
    now_s: float,
    limits: Limits,
) -> Effects:
    match event:
        case Answered() if event.uid in running.unanswered:
            running.unanswered.discard(event.uid)
            if running.phase is Phase.ASKING:
                yield from _record_rehearsal(book, running, event, now_s, limits)
            elif event.outcome in (Outcome.BUDGET, Outcome.FAILED):
                running.retry_at_s[event.uid] = now_s + limits.again_s
            elif event.outcome is Outcome.YES:
                victim = _victim_by_uid(running.attempt, event.uid)
                yield NotifyVictim(attempt=running.attempt, victim=victim)
        case ChipsFree() if running.phase is Phase.LEAVING:
            running.phase = Phase.READY
            running.until_s = now_s + limits.ready_s
            yield WakeScheduler()
        case AttemptEnded():
            yield _end_attempt(book, running)
        case _:
            pass  # a late answer, or a repeated event


def _record_rehearsal(
    book: Attempts,
    running: RunningAttempt,
    event: Answered,
    now_s: float,
    limits: Limits,
) -> Effects:
    if event.outcome is Outcome.BUDGET:
        book.protected[event.uid] = now_s + limits.spared_s
        yield _end_attempt(book, running)
        yield WakeScheduler()  # other pods may be victims
    elif event.outcome is Outcome.FAILED:
        book.backing_off[event.owner] = now_s + limits.again_s
        yield _end_attempt(book, running)
    elif not running.unanswered:
        attempt = running.attempt
        running.phase = Phase.LEAVING
        running.until_s = now_s + limits.leave_s
        running.unanswered = {victim.uid for victim in attempt.victims}
        yield Announce(attempt=attempt)
        for victim in attempt.victims:
            yield Evict(owner=attempt.owner, victim=victim, rehearse=False)


def _tick(book: Attempts, now_s: float, limits: Limits) -> Effects:
    for running in list(book.running.values()):
        if now_s >= running.until_s:
            is_long = running.phase is not Phase.ASKING
            pause_s = limits.rest_s if is_long else limits.again_s
            book.backing_off[running.attempt.owner] = now_s + pause_s
            yield _end_attempt(book, running)
            if running.phase is Phase.LEAVING:
                yield NotifyTimedOut(attempt=running.attempt)
            continue
        for uid in [uid for uid, at_s in running.retry_at_s.items() if now_s >= at_s]:
            del running.retry_at_s[uid]
            running.unanswered.add(uid)
            victim = _victim_by_uid(running.attempt, uid)
            yield Evict(owner=running.attempt.owner, victim=victim, rehearse=False)
    expired = [
        *_drop_expired(book.protected, now_s),
        *_drop_expired(book.backing_off, now_s),
    ]
    if expired:
        yield WakeScheduler()


def _drop_expired(until: dict[str, float], now_s: float) -> list[str]:
    expired = [key for key, end_s in until.items() if now_s >= end_s]
    for key in expired:
        del until[key]
    return expired


def _end_attempt(book: Attempts, running: RunningAttempt) -> ClearNomination:
    del book.running[running.attempt.owner]
    return ClearNomination(owner=running.attempt.owner)


def _victim_by_uid(attempt: Attempt, uid: str) -> Victim:
    return next(victim for victim in attempt.victims if victim.uid == uid)
