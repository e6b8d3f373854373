"""The way of faults through time: when a job is judged, and when its pods are told.

Faults are seen, node by node. A fault that moves a pod settles first: the pod counts as
a fault pod only after so long. Then its job is judged, and judged again when something
has changed, with pauses. Pods are told what is new only.

    a pod of the job             event                  result
    ---------------------------  ---------------------  --------------------------------
    -                            Seen with a fault      settles, or is due at once
    settles                      Ticked, in time        due: the job is judged
    settles or due               Seen without a fault   forgotten: the fault or the pod
                                                        is over; if others of the job
                                                        are due, the job is judged
    due                          Seen with another      the job is judged, at once if
                                 fault                  other chips are broken
    due                          Changed                the job is judged again, in the
                                                        next tick after the pause
    due                          Judged                 told, if there is news

A second fault of a job joins the first: the assessment is of all its fault pods that
are due. A job without fault pods is forgotten.

`step` is pure. `rescheduler` carries the effects out. Evictions will be effects, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from extender.rescheduling.assessment import REASONS, Assessment, describe_fault
from scheduler_core.wire.chip_faults import ChipFault

#: Chips of a resource of a node.
Place = tuple[str, str]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Pauses, in seconds, and a number."""

    #: between two assessments of a job that changes; doubles without news
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    #: jobs that are judged in one tick; each may cost some hundred milliseconds
    at_once: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A pod with a fault that moves it, and the worst of such faults."""

    #: key of its job, or its own UID
    job: str
    fault: ChipFault
    #: mask of its chips with such faults
    chips: int
    #: how long the fault must last
    settle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPod:
    """A pod with a fault that moves it once it is due."""

    place: Place
    fault: ChipFault
    chips: int
    due_s: float
    #: as `Assessment.news`, of the assessment that it was told
    news: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultJob:
    """A job with fault pods, and the last assessment of it."""

    #: {UID: pod}
    pods: Mapping[str, FaultPod] = field(default_factory=dict)
    #: None until the first pod is due
    assessment: Assessment | None = None
    #: {UID: mask of chips with faults} of the pods that it is about
    judged: Mapping[str, int] = field(default_factory=dict)
    #: whether something has changed since that assessment
    is_changed: bool = False
    #: earliest time of the next assessment, and how long it then waits at least
    again_s: float = 0.0
    pause_s: float = 0.0

    def due(self, now_s: float) -> dict[str, int]:
        """Return {UID: mask of the chips with faults} of its pods that are due."""
        return {uid: p.chips for uid, p in self.pods.items() if p.due_s <= now_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All jobs with fault pods; empty while nothing is broken."""

    #: {key of a job, or UID of a pod that is a job by itself: job}
    jobs: Mapping[str, FaultJob] = field(default_factory=dict)
    #: {place: {UID of each of its fault pods: job}}
    places: Mapping[Place, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The event that the pods of a place were looked at."""

    place: Place
    #: {UID of each pod there that has a fault: sighting}
    pods: Mapping[str, Sighting]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The event that something has changed by which an assessment may change."""

    job: str
    #: whether the last assessment waits for it, so that no pause holds
    is_awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The event that a job was judged, with these fault pods."""

    job: str
    faulty: Mapping[str, int]
    assessment: Assessment


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """The event that time has passed, so that pods may be due and pauses over."""


Event = Seen | Changed | Judged | Ticked


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The effect that a job is judged; the event `Judged` answers it."""

    job: str
    #: {UID of a fault pod: mask of its chips with faults}
    faulty: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """The effect that a fault pod is told the assessment of its job, as an event."""

    uid: str
    reason: str
    text: str


Effect = Judge | Tell


def step(
    state: State,
    event: Event,
    now_s: float,
    limits: Limits = Limits(),  # a frozen value
) -> tuple[State, tuple[Effect, ...]]:
    """Return the state after an event, and the effects to carry out, in order.

    Args:
        now_s: Seconds since the epoch.

    Cost:
        A step for each job with fault pods. Nothing for most events, while there are
        none.
    """
    match event:
        case Seen():
            state, touched = _see(state, event, now_s)
            return state, _judge(state, touched, now_s)
        case Changed(job=key):
            job = state.jobs.get(key)
            if job is None:
                return state, ()
            again_s = now_s if event.is_awaited else job.again_s
            return _with(state, key, replace(job, is_changed=True, again_s=again_s)), ()
        case Judged():
            return _take(state, event, now_s, limits)
        case Ticked():
            return state, _judge(state, state.jobs, now_s)[: limits.at_once]
        case _:
            assert_never(event)


def _see(state: State, event: Seen, now_s: float) -> tuple[State, set[str]]:
    """Return the state after a look at a place, and the jobs in which pods differ."""
    before, touched = state.places.get(event.place, {}), set[str]()
    if not before and not event.pods:
        return state, touched
    for uid, key in before.items():
        if uid not in event.pods or event.pods[uid].job != key:
            state = _forget(state, key, uid)
            touched.add(key)
    for uid, sighting in event.pods.items():
        key = sighting.job
        job = state.jobs.get(key, FaultJob())
        known = job.pods.get(uid)
        pod = _pod(event.place, sighting, known, now_s)
        if pod != known:
            pods = {**job.pods, uid: pod}
            state = _with(state, key, replace(job, pods=pods, is_changed=True))
            touched.add(key)
    jobs = {uid: sighting.job for uid, sighting in event.pods.items()}
    return replace(state, places=_put(state.places, event.place, jobs or None)), touched


def _pod(
    place: Place, sighting: Sighting, known: FaultPod | None, now_s: float
) -> FaultPod:
    """Return a fault pod; one that was due, or would have been sooner, stays so."""
    due_s = now_s + sighting.settle_s
    if known is None:
        return FaultPod(
            place=place, fault=sighting.fault, chips=sighting.chips, due_s=due_s
        )
    return replace(
        known,
        place=place,
        fault=sighting.fault,
        chips=sighting.chips,
        due_s=min(known.due_s, due_s),
    )


def _forget(state: State, key: str, uid: str) -> State:
    """Return the state without a fault pod, and without its job if it was the last."""
    job = state.jobs.get(key)
    if job is None:
        return state
    pods = _put(job.pods, uid, None)
    return _with(state, key, replace(job, pods=pods) if pods else None)


def _judge(state: State, keys: Iterable[str], now_s: float) -> tuple[Judge, ...]:
    """Return those of the jobs that are to be judged, the first of them first.

    At once if other pods are due than those of the last assessment, or other chips are
    broken; else if something has changed, after the pause.
    """
    wanting: list[tuple[bool, float, Judge]] = []
    for key in keys:
        job = state.jobs.get(key)
        faulty = {} if job is None else job.due(now_s)
        if job is None or not faulty:
            continue
        is_new = faulty != job.judged
        if is_new or (job.is_changed and job.again_s <= now_s):
            wanting.append((not is_new, job.again_s, Judge(job=key, faulty=faulty)))
    wanting.sort(key=lambda item: (*item[:2], item[2].job))
    return tuple(judge for _, _, judge in wanting)


def _take(
    state: State, event: Judged, now_s: float, limits: Limits
) -> tuple[State, tuple[Effect, ...]]:
    job, assessment = state.jobs.get(event.job), event.assessment
    if job is None:
        return state, ()
    pause_s = limits.first_pause_s
    if job.assessment is not None and job.assessment.news == assessment.news:
        pause_s = min(max(2 * job.pause_s, pause_s), limits.longest_pause_s)
    pods, effects = dict(job.pods), []
    reason = REASONS.get(assessment.word)
    for uid in event.faulty:
        pod = pods.get(uid)
        if reason is not None and pod is not None and pod.news != assessment.news:
            pods[uid] = replace(pod, news=assessment.news)
            text = f"{describe_fault(pod.fault)}. {assessment.text}"
            effects.append(Tell(uid=uid, reason=reason, text=text))
    judged = replace(
        job,
        pods=pods,
        assessment=assessment,
        judged=event.faulty,
        is_changed=False,
        again_s=now_s + pause_s,
        pause_s=pause_s,
    )
    return _with(state, event.job, judged), tuple(effects)


def _with(state: State, key: str, job: FaultJob | None) -> State:
    return replace(state, jobs=_put(state.jobs, key, job))


def _put(
    entries: Mapping[_Key, _Value], key: _Key, value: _Value | None
) -> Mapping[_Key, _Value]:
    """Return entries with another value; without the key for None."""
    rest = {known: entry for known, entry in entries.items() if known != key}
    return rest if value is None else rest | {key: value}
