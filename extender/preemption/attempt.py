"""Phases of an attempt to free chips for a pod or a job by eviction.

The pod or job that the chips are freed for is the beneficiary of the attempt. During
the attempt the chips are nominated: reserved for the beneficiary. In phase ASKING a dry
run of each eviction is sent to the API server. If all dry runs succeed, phase LEAVING
begins: the victims are evicted. In phase READY the chips are free and wait for the
beneficiary. A victim whose PodDisruptionBudget refuses the dry run is protected: for a
while no new attempt chooses it. A beneficiary in back-off gets no attempt.

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
    any      Blocked                            ended; short back-off
    any      AttemptEnded                       ended: the beneficiary takes the chips,
                                                or does not need them now
    ASKING   Ticked, after the limit            ended; short back-off
    LEAVING  Ticked, after the limit            ended; long back-off, Kubernetes event
                                                on the beneficiary's unbound pods
    READY    Ticked, after the limit            ended; long back-off
    -        Untaken                            long back-off

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
    #: from free chips until filter is called for the beneficiary
    ready_s: float = 60.0
    #: short back-off: after a failure, and between two evictions of a pod
    again_s: float = 5.0
    #: protection of a pod whose PodDisruptionBudget refused
    spared_s: float = 60.0
    #: long back-off: after an attempt that timed out
    rest_s: float = 300.0

    @property
    def longest_s(self) -> float:
        """Seconds after which an attempt has ended in any case, and some more."""
        return self.ask_s + self.leave_s + self.ready_s + self.again_s


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
    """The pod or job for which chips are to be freed, and the pods to evict."""

    #: UID of the pod, or key of the job
    beneficiary: str
    #: name of the pod or the job, for sentences
    title: str
    priority: int
    #: the most important victim first
    victims: tuple[Victim, ...]

    @property
    def victim_names(self) -> str:
        """Return the names of the first three victims, and how many more there are."""
        names = [victim.title for victim in self.victims]
        more = len(names) - 3
        listed = ", ".join(names[:3])
        return f"{listed} and {more} more" if more > 0 else listed


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """Attempt that has started and not ended, with phase and unanswered evictions."""

    attempt: Attempt
    #: differs from that of each earlier attempt
    number: int
    phase: Phase
    until_s: float
    #: UIDs of victims with an unanswered eviction or dry run
    unanswered: set[str]
    #: {uid: time of its next eviction}
    retry_at_s: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Attempts:
    """All running attempts, protected pods, and beneficiaries in back-off.

    A pod whose PodDisruptionBudget refused the dry run of an eviction is protected: for
    a while no new attempt chooses it. A beneficiary (pod or job) in back-off gets no
    new attempt for a while.
    """

    #: {beneficiary: its attempt}
    running: dict[str, RunningAttempt] = field(default_factory=dict)
    #: {uid: time until which the pod is no victim}
    protected: dict[str, float] = field(default_factory=dict)
    #: {beneficiary: time until which it gets no attempt}
    backing_off: dict[str, float] = field(default_factory=dict)
    #: number of attempts that were ever started
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """Event: the preemptor has chosen victims for a pod or a job."""

    attempt: Attempt
    #: resource of the chips
    resource: str
    #: {node: mask} of the chips to free; includes chips that are free already
    chips: Mapping[str, int]

    @property
    def text(self) -> str:
        """Return a sentence that names the chips to free and up to three victims."""
        listed = ", ".join(
            f"{','.join(map(str, chips.ids_of(mask)))} of {node}"
            for node, mask in sorted(self.chips.items())
        )
        attempt = self.attempt
        victims_clause = (
            f", which {attempt.victim_names} must leave" if attempt.victims else ""
        )
        return f"chips {listed} are kept for it{victims_clause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Event: the API server has answered an eviction, or its dry run.

    An answer to an earlier attempt for the same beneficiary has no effect.
    """

    beneficiary: str
    #: as in the effect `Evict`
    number: int
    uid: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipsFree:
    """Event: no pod occupies the chips of an attempt any more."""

    beneficiary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """Event: the beneficiary takes the chips, or does not need them now."""

    beneficiary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Event: the chips of a new attempt cannot be reserved, others have some."""

    beneficiary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Untaken:
    """Event: a pod has taken up the freed chips, and no bind came for it in time."""

    beneficiary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Event: time has passed, so that limits and pauses may have run out."""


Event = (
    AttemptStarted | Answered | ChipsFree | AttemptEnded | Blocked | Untaken | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominate:
    """Effect: reserve the chips of an attempt for its pod or job.

    The reservations last until the attempt ends. Only they say which chips it frees.
    """

    started: AttemptStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearNomination:
    """Effect: end the reservation of an ended attempt's chips."""

    beneficiary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Effect: send the eviction of a victim, or only its dry run (`rehearse`)."""

    beneficiary: str
    #: number of the attempt
    number: int
    victim: Victim
    rehearse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Effect: emit a Kubernetes event about an attempt."""

    attempt: Attempt
    reason: str
    text: str
    #: the pod that the event is on; None: all unbound pods of the beneficiary
    victim: Victim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeScheduler:
    """Effect: make schedulers try all refused pods again."""


Effect = Nominate | ClearNomination | Evict | EmitEvent | WakeScheduler
Effects = Iterator[Effect]


def step(
    book: Attempts, event: Event, now_s: float, limits: Limits
) -> tuple[Effect, ...]:
    """Apply an event to the attempts. Return the effects, to be carried out in order.

    Args:
        book: All attempts. Changed in place.
        event: `AttemptStarted` is ignored if its beneficiary has a running attempt.
            `Answered`, `ChipsFree` and `AttemptEnded` are ignored if their beneficiary
            has no running attempt. A beneficiary is a pod or job.
        now_s: Seconds since the epoch.
        limits: Time limits and pauses of attempts.
    """
    match event:
        case AttemptStarted():
            return tuple(_start(book, event, now_s, limits))
        case Ticked():
            return tuple(_tick(book, now_s, limits))
        case Untaken(beneficiary=beneficiary):
            book.backing_off[beneficiary] = now_s + limits.rest_s
            return ()
        case Answered() | ChipsFree() | AttemptEnded() | Blocked():
            running = book.running.get(event.beneficiary)
            if running is None:
                return ()
            return tuple(_step_attempt(book, running, event, now_s, limits))
        case _:
            assert_never(event)


def _start(
    book: Attempts, started: AttemptStarted, now_s: float, limits: Limits
) -> Effects:
    attempt = started.attempt
    if attempt.beneficiary in book.running:
        return
    is_asking = bool(attempt.victims)
    book.count += 1
    running = book.running[attempt.beneficiary] = RunningAttempt(
        attempt=attempt,
        number=book.count,
        phase=Phase.ASKING if is_asking else Phase.LEAVING,
        until_s=now_s + (limits.ask_s if is_asking else limits.leave_s),
        unanswered={victim.uid for victim in attempt.victims},
    )
    yield Nominate(started=started)
    for victim in attempt.victims:
        yield _evict(running, victim, rehearse=True)


def _evict(running: RunningAttempt, victim: Victim, *, rehearse: bool) -> Evict:
    return Evict(
        beneficiary=running.attempt.beneficiary,
        number=running.number,
        victim=victim,
        rehearse=rehearse,
    )


def _step_attempt(
    book: Attempts,
    running: RunningAttempt,
    event: Answered | ChipsFree | AttemptEnded | Blocked,
    now_s: float,
    limits: Limits,
) -> Effects:
    match event:
        case Answered() if (
            event.number == running.number and event.uid in running.unanswered
        ):
            running.unanswered.discard(event.uid)
            if running.phase is Phase.ASKING:
                yield from _record_rehearsal(book, running, event, now_s, limits)
            elif event.outcome in (Outcome.BUDGET, Outcome.FAILED):
                running.retry_at_s[event.uid] = now_s + limits.again_s
            elif event.outcome is Outcome.YES:
                victim = _victim_by_uid(running.attempt, event.uid)
                yield tell_victim(running.attempt, victim)
        case ChipsFree() if running.phase is Phase.LEAVING:
            running.phase = Phase.READY
            running.until_s = now_s + limits.ready_s
            yield WakeScheduler()
        case AttemptEnded():
            yield _end_attempt(book, running)
        case Blocked():
            book.backing_off[event.beneficiary] = now_s + limits.again_s
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
        book.backing_off[event.beneficiary] = now_s + limits.again_s
        yield _end_attempt(book, running)
    elif not running.unanswered:
        attempt = running.attempt
        running.phase = Phase.LEAVING
        running.until_s = now_s + limits.leave_s
        running.unanswered = {victim.uid for victim in attempt.victims}
        yield announce(attempt)
        for victim in attempt.victims:
            yield _evict(running, victim, rehearse=False)


def _tick(book: Attempts, now_s: float, limits: Limits) -> Effects:
    for running in list(book.running.values()):
        if now_s >= running.until_s:
            is_long = running.phase is not Phase.ASKING
            pause_s = limits.rest_s if is_long else limits.again_s
            book.backing_off[running.attempt.beneficiary] = now_s + pause_s
            yield _end_attempt(book, running)
            if running.phase is Phase.LEAVING:
                yield tell_timed_out(running.attempt, limits)
            continue
        for uid in [uid for uid, at_s in running.retry_at_s.items() if now_s >= at_s]:
            del running.retry_at_s[uid]
            running.unanswered.add(uid)
            victim = _victim_by_uid(running.attempt, uid)
            yield _evict(running, victim, rehearse=False)
    expired = [
        *_drop_expired(book.protected, now_s),
        *_drop_expired(book.backing_off, now_s),
    ]
    if expired:
        yield WakeScheduler()


def announce(attempt: Attempt) -> EmitEvent:
    """Tell the pods for which chips are freed whose eviction has begun."""
    text = f"pods of lower priority are evicted to free chips: {attempt.victim_names}"
    return EmitEvent(attempt=attempt, reason="AscendPreempting", text=text)


def tell_victim(attempt: Attempt, victim: Victim) -> EmitEvent:
    """Tell a victim for which pod or job it is evicted."""
    text = (
        f"evicted for {attempt.title}, which needs its chips and has a higher priority "
        f"({attempt.priority})"
    )
    return EmitEvent(
        attempt=attempt, reason="AscendPreempted", text=text, victim=victim
    )


def tell_timed_out(attempt: Attempt, limits: Limits) -> EmitEvent:
    """Tell the pods for which chips did not become free in time."""
    minutes = limits.leave_s / 60
    text = f"timed out after {minutes:g} min waiting for victims to release their chips"
    return EmitEvent(attempt=attempt, reason="AscendPreemptionTimeout", text=text)


def _drop_expired(until: dict[str, float], now_s: float) -> list[str]:
    expired = [key for key, end_s in until.items() if now_s >= end_s]
    for key in expired:
        del until[key]
    return expired


def _end_attempt(book: Attempts, running: RunningAttempt) -> ClearNomination:
    del book.running[running.attempt.beneficiary]
    return ClearNomination(beneficiary=running.attempt.beneficiary)


def _victim_by_uid(attempt: Attempt, uid: str) -> Victim:
    return next(victim for victim in attempt.victims if victim.uid == uid)
