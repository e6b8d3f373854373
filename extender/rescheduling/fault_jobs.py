"""Jobs with fault pods: when they are judged, and what they are told.

Also what keeps their pods from going. The steps of fault pods and their jobs, which
`machine` puts together with those of moves. All are pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from extender.rescheduling import departures, stages
from extender.rescheduling.assessment import REASONS, Word, describe_fault
from extender.rescheduling.moves import Faults, KeptPlace, Limits, Tell
from extender.rescheduling.state import (
    After,
    Changed,
    FaultJob,
    FaultPod,
    Judge,
    Judged,
    Place,
    Seen,
    Sighting,
    State,
    put,
    with_job,
)

#: Assessments of pods that go if nothing keeps them.
MOVING = (Word.MOVES, Word.SHRINKS)
#: Assessments of jobs for whose faults pods are to be evicted.
_WANTING = (*MOVING, Word.NO_SPARE)


def see(state: State, event: Seen, now_s: float) -> tuple[State, set[str]]:
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
            state = with_job(state, key, replace(job, pods=pods, is_changed=True))
            touched.add(key)
    jobs = {uid: sighting.job for uid, sighting in event.pods.items()}
    return replace(state, places=put(state.places, event.place, jobs or None)), touched


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
    pods = put(job.pods, uid, None)
    return with_job(state, key, replace(job, pods=pods) if pods else None)


def judge(
    state: State, keys: Iterable[str], now_s: float, limits: Limits
) -> tuple[Judge, ...]:
    """Return those of the jobs that are to be judged, the first of them first.

    At once if other pods are due than those of the last assessment, other chips are
    broken, or nothing keeps the pods any more; else if something has changed, after the
    pause. Pods that go already are no part of the question.
    """
    wanting: list[tuple[bool, float, Judge]] = []
    for key in keys:
        job, move = state.jobs.get(key), state.moves.get(key)
        if job is None or (move is not None and move.is_being_written):
            continue
        going = move.committed if move is not None else frozenset()
        faulty = {u: mask for u, mask in job.due(now_s).items() if u not in going}
        if not faulty:
            continue
        judged = {u: mask for u, mask in job.judged.items() if u not in going}
        is_new = faulty != judged or _is_free(state, key, now_s, limits)
        is_covered = move is not None and move.covers(faulty)
        if is_new or (job.is_changed and job.again_s <= now_s and not is_covered):
            facts = None
            if limits.is_evicting:
                facts = stages.facts_of(move, now_s, limits)
            ordered = Judge(job=key, faulty=faulty, facts=facts)
            wanting.append((not is_new, job.again_s, ordered))
    wanting.sort(key=lambda item: (*item[:2], item[2].job))
    return tuple(ordered for _, _, ordered in wanting)


def _is_free(state: State, key: str, now_s: float, limits: Limits) -> bool:
    """Whether nothing keeps a job any more whose pods had to wait."""
    job = state.jobs[key]
    faults = faults_of(job, job.judged)
    return bool(job.waits) and not why_waits(state, key, faults, now_s, limits)


def faults_of(job: FaultJob, faulty: Mapping[str, int]) -> Faults:
    """Return the chips with faults of fault pods, by place."""
    return tuple(
        sorted(
            (*job.pods[uid].place, mask)
            for uid, mask in faulty.items()
            if mask and uid in job.pods
        )
    )


def tell(
    state: State, event: Judged, now_s: float, limits: Limits, waits: str = ""
) -> After:
    """Note an assessment, and tell it to the fault pods for which it is news.

    Args:
        waits: Why the pods do not go now, though they have places.
    """
    job, assessment = state.jobs[event.job], event.assessment
    pause_s = limits.first_pause_s
    is_known = job.assessment is not None and job.assessment.news == assessment.news
    if is_known:
        pause_s = min(max(2 * job.pause_s, pause_s), limits.longest_pause_s)
    pods, effects = dict(job.pods), []
    reason, text, news = REASONS.get(assessment.word), assessment.text, assessment.news
    if waits:
        reason, text = departures.WAITS, _describe_wait(waits)
        news = *news, waits
    elif limits.is_evicting and assessment.word in MOVING:
        reason = None  # each pod is told when it is asked to go
    for uid in event.faulty:
        pod = pods.get(uid)
        if reason is not None and pod is not None and pod.news != news:
            pods[uid] = replace(pod, news=news)
            full = f"{describe_fault(pod.fault)}. {text}"
            effects.append(Tell(uid=uid, reason=reason, text=full))
    judged = replace(
        job,
        pods=pods,
        assessment=assessment,
        judged=event.faulty,
        is_changed=False,
        again_s=now_s + pause_s,
        pause_s=pause_s,
        waits=waits,
        refused_s=0.0,
    )
    return with_job(state, event.job, judged), tuple(effects)


def _describe_wait(why: str) -> str:
    return f"Its job waits with evictions: {why}"


def put_off(state: State, key: str, why: str, now_s: float, limits: Limits) -> After:
    """Have a job judged again after a pause, as a step of its move has failed."""
    job = state.jobs.get(key)
    if job is None:
        return state, ()
    pause_s = min(max(2 * job.pause_s, limits.first_pause_s), limits.longest_pause_s)
    pods, effects = dict(job.pods), []
    for uid, pod in job.pods.items():
        if pod.due_s <= now_s and pod.news != (why,):
            pods[uid] = replace(pod, news=(why,))
            text = f"{describe_fault(pod.fault)}. {_describe_wait(why)}"
            effects.append(Tell(uid=uid, reason=departures.WAITS, text=text))
    waits = replace(
        job,
        pods=pods,
        judged=job.due(now_s),
        is_changed=True,
        again_s=now_s + pause_s,
        pause_s=pause_s,
    )
    return with_job(state, key, waits), tuple(effects)


def refuse(state: State, key: str, now_s: float) -> State:
    """Note that a budget has refused to let the move of a job begin."""
    job = state.jobs.get(key)
    if job is None or job.refused_s:
        return state
    return with_job(state, key, replace(job, refused_s=now_s))


def join(state: State, key: str, place: KeptPlace, now_s: float) -> State:
    """Have a pod judged that goes with its whole job, and has no place for it now."""
    job, home = state.jobs.get(key, FaultJob()), (place.home, place.resource)
    pod = FaultPod(place=home, fault=None, chips=0, due_s=now_s)
    return with_job(state, key, replace(job, pods={place.uid: pod, **job.pods}))


def forget_joined(state: State) -> State:
    """Forget pods without a fault that have a place again, or whose move is over."""
    for key, job in state.jobs.items():
        move = state.moves.get(key)
        for uid, pod in job.pods.items():
            departure = None if move is None else move.departures.get(uid)
            has_place = departure is None or not departure.is_homeless
            if pod.fault is None and has_place:
                state = _forget(state, key, uid)
    return state


def change(state: State, event: Changed, now_s: float) -> State:
    """Note that something has changed by which the assessment of a job may change."""
    job = state.jobs.get(event.job)
    if job is None:
        return state
    again_s = now_s if event.is_awaited else job.again_s
    return with_job(state, event.job, replace(job, is_changed=True, again_s=again_s))


def judge_anew(state: State, key: str) -> State:
    """Return the state with a job that is to be judged whatever was known of it."""
    job = state.jobs.get(key)
    if job is None:
        return state
    return with_job(state, key, replace(job, judged={}, is_changed=True))


def want(state: State, event: Judged, now_s: float, limits: Limits) -> State:
    """Note nodes for whose faults pods are to be evicted, and when these were due."""
    pods = state.jobs[event.job].pods
    broken = [pods[uid] for uid in event.faulty if uid in pods and pods[uid].chips]
    due_s = {pod.place[0]: pod.due_s for pod in broken}
    old_s = now_s - limits.brake_s
    found = {n: s for n, s in due_s.items() if s > max(state.wanting.get(n, 0), old_s)}
    return replace(state, wanting={**state.wanting, **found}) if found else state


def want_still(state: State, now_s: float, limits: Limits) -> State:
    """Forget nodes whose faults are old, but for those whose pods the brake keeps.

    So faults that come one by one never stop evictions, however long they last, and
    those that came together do until there are fewer.
    """
    kept_back = set[str]()
    if state.is_braked(limits) and not state.held.is_all:
        kept_back = {
            pod.place[0]
            for key, job in state.jobs.items()
            if job.waits and key not in state.held.jobs
            for pod in job.pods.values()
            if pod.chips
        }
    wanting = {
        node: due_s
        for node, due_s in state.wanting.items()
        if now_s < due_s + limits.brake_s or node in kept_back
    }
    return state if wanting == state.wanting else replace(state, wanting=wanting)


def is_wanting(event: Judged) -> bool:
    """Whether pods of a job are to be evicted, now or once there is room."""
    return event.assessment.word in _WANTING


def why_waits(
    state: State, key: str, faults: Faults, now_s: float, limits: Limits
) -> str:
    """Return what keeps pods of a job with a fault from going; "" if nothing."""
    stopped = why_stopped(state, key, limits)
    return stopped or stages.why_rests(state.moves.get(key), faults, now_s, limits)


def why_stopped(state: State, key: str, limits: Limits) -> str:
    """Return what keeps all pods of a job from being asked to go; "" if nothing."""
    if state.held.is_all:
        return "the settings of the extender hold all evictions"
    if key in state.held.jobs:
        return "an annotation of its pods holds its evictions"
    if state.is_braked(limits):
        most = state.most_wanting(limits)
        return f"chips are broken on more than {most} nodes, which stops all evictions"
    return ""
