"""What is to be done about a Job: a pure step from what is to a list of writes.

Two steps count a pod that has ended, so that none is counted twice or never: the first
writes its UID into the status and takes its finalizer away, a later one finds the
finalizer gone and counts it.

Source: Kubernetes v1.36.3, `syncJob`, `manageJob` and
`trackJobStatusAndRemoveFinalizers` of `pkg/controller/job/job_controller.go`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse, islice

from sandbox.apiclient import Object
from sandbox.jobs import indexes
from sandbox.jobs.failures import FIRST_PAUSE_S, NO_FAILURES, Backoff, match
from sandbox.jobs.pods import NO_INDEX, JobPod, job_pod
from service import clock

_COMPLETE, _FAILED = "Complete", "Failed"
#: {condition that says how a Job will end: condition that says that it has ended}
_ENDS = {"SuccessCriteriaMet": _COMPLETE, "FailureTarget": _FAILED}
#: Numbers that a status leaves out while they are 0.
_LEFT_OUT = ("active", "succeeded", "failed", "completedIndexes")


@dataclass(frozen=True, slots=True)
class Create:
    """Make a pod."""

    #: -1 for a Job that is not Indexed
    index: int = NO_INDEX


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a pod."""

    pod: JobPod


@dataclass(frozen=True, slots=True)
class Release:
    """Take the Job's finalizer from a pod."""

    pod: JobPod


@dataclass(frozen=True, slots=True)
class Tell:
    """Write the Job's status."""

    status: Object


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the Job itself, whose time after its end is over."""


Write = Create | Delete | Release | Tell | Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one step decides."""

    #: in the order in which they are sent
    writes: tuple[Write, ...] = ()
    #: to be given to the Job's next step
    backoff: Backoff = NO_FAILURES
    #: when another step is due though nothing changes; Unix seconds; None: never
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Cause:
    """A condition of a Job, without its time."""

    type: str
    reason: str
    message: str

    def at(self, now_s: float, status: str = "True") -> Object:
        """Return it as the status of a Job has it."""
        now = clock.rfc3339(now_s)
        texts = {"type": self.type, "reason": self.reason, "message": self.message}
        return {
            **{key: text for key, text in texts.items() if text},
            "status": status,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tally:
    """A Job and its pods, counted."""

    job: Object
    pods: tuple[JobPod, ...]
    active: tuple[JobPod, ...]
    #: {succeeded or failed: UIDs in the status of pods that still have the finalizer}
    uncounted: dict[str, list[str]]
    #: {succeeded or failed: pods that the status says to have ended so}
    counted: Counter[str]
    #: with the finalizer, and not in the status
    succeeded: tuple[JobPod, ...]
    failed: tuple[JobPod, ...]
    #: of the failed ones, those that the policy does not ignore
    blamed: tuple[JobPod, ...]
    done: frozenset[int]

    @property
    def is_indexed(self) -> bool:
        return _is_indexed(self.job)

    @property
    def successes(self) -> int:
        if self.is_indexed:
            return len(self.done)
        waiting = len(self.uncounted["succeeded"]) + len(self.succeeded)
        return self.counted["succeeded"] + waiting

    @property
    def failures(self) -> int:
        waiting = len(self.uncounted["failed"]) + len(self.blamed)
        return self.counted["failed"] + waiting

    @property
    def terminating(self) -> int:
        return sum(pod.is_terminating for pod in self.pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """Which pods go and come."""

    deletes: tuple[JobPod, ...] = ()
    #: whether the deleted pods lose the finalizer before, and so count as no failures
    are_forgotten: bool = False
    creates: tuple[int, ...] = ()
    #: when the back-off is over that lets none come; Unix seconds
    waits_until_s: tuple[float, ...] = ()


def sync(
    job: Object,
    sources: Sequence[Object],
    now_s: float,
    backoff: Backoff = NO_FAILURES,
    *,
    first_pause_s: float = FIRST_PAUSE_S,
) -> Decision:
    """Decide what to do about a Job.

    Args:
        job: As the API server shows it.
        sources: Its pods.
        now_s: Unix seconds.
        backoff: Of the step before.
        first_pause_s: After the first failure; doubles with each.
    """
    pods = tuple(sorted(map(job_pod, sources), key=lambda pod: pod.index))
    if any(_true_conditions(job, *_ENDS.values())):
        return _after_the_end(job, pods, now_s)
    tally = _tally(job, pods)
    backoff = backoff.after(tally.succeeded, tally.failed)
    is_going = "deletionTimestamp" in job["metadata"]
    end, moves = next(_ends(tally, now_s), None), _Moves()
    if end is not None:
        moves = _Moves(deletes=tally.active)
    elif not is_going:
        moves = _manage(tally, now_s, backoff.until_s(first_pause_s))
    end = end or next(_successes(tally, moves), None)
    forgotten = {*moves.deletes} if moves.are_forgotten else set()
    released = tuple(
        pod
        for pod in pods
        if pod.is_tracked
        and pod not in forgotten
        and (is_going or end or pod.phase == "Succeeded" or _has_failed(job, pod))
    )
    status = _status(tally, moves, end, now_s, is_settled=not released)
    if not is_going and end is None:
        _tell_suspension(job, status, now_s)
    writes = [*_move(moves), *_tell(job, status), *map(Release, released)]
    due_s = [*moves.waits_until_s, *(() if end else _deadline(job, status))]
    again_s = min(due_s, default=None)
    return Decision(writes=tuple(writes), backoff=backoff, again_s=again_s)


def _after_the_end(job: Object, pods: Sequence[JobPod], now_s: float) -> Decision:
    """Let go of what is left of a Job, and of the Job when its time is over."""
    writes: list[Write] = [Release(pod) for pod in pods if pod.is_tracked]
    stay_s = job["spec"].get("ttlSecondsAfterFinished")
    if stay_s is None or "deletionTimestamp" in job["metadata"]:
        return Decision(writes=tuple(writes))
    (end, *_) = _true_conditions(job, *_ENDS.values())
    due_s = (clock.parse_time(end["lastTransitionTime"]) or 0.0) + stay_s
    if due_s > now_s:
        return Decision(writes=tuple(writes), again_s=due_s)
    return Decision(writes=(*writes, Remove()))


def _tally(job: Object, pods: tuple[JobPod, ...]) -> _Tally:
    status = job.get("status") or {}
    noted = status.get("uncountedTerminatedPods") or {}
    tracked = {pod.uid for pod in pods if pod.is_tracked}
    uncounted: dict[str, list[str]] = {}
    counted = Counter[str]()
    for kind in ("succeeded", "failed"):
        uids = noted.get(kind) or []
        uncounted[kind] = [uid for uid in uids if uid in tracked]
        counted[kind] = status.get(kind, 0) + len(uids) - len(uncounted[kind])
    seen = {uid for uids in uncounted.values() for uid in uids}
    fresh = [
        pod
        for pod in pods
        if pod.is_tracked and pod.uid not in seen and _is_valid(job, pod)
    ]
    succeeded = tuple(pod for pod in fresh if pod.phase == "Succeeded")
    failed = tuple(pod for pod in fresh if _has_failed(job, pod))
    done = indexes.parse(
        status.get("completedIndexes", ""), job["spec"].get("completions") or 0
    )
    return _Tally(
        job=job,
        pods=pods,
        active=tuple(pod for pod in pods if pod.is_active),
        uncounted=uncounted,
        counted=counted,
        succeeded=succeeded,
        failed=failed,
        blamed=tuple(pod for pod in failed if _is_blamed(job, pod)),
        done=done | {pod.index for pod in succeeded},
    )


def _ends(tally: _Tally, now_s: float) -> Iterator[_Cause]:
    """Yield why a Job ends though there would be more to do."""
    job, spec = tally.job, tally.job["spec"]
    for said in _true_conditions(job, *_ENDS):
        yield _Cause(said["type"], said.get("reason", ""), said.get("message", ""))
    for pod in tally.pods:
        rule = match(job, pod) if _has_failed(job, pod) else None
        if rule is not None and rule.action == "FailJob":
            yield _Cause("FailureTarget", "PodFailurePolicy", rule.message)
    limit = spec["backoffLimit"]
    restarts = _restarts(tally)
    if tally.failures > limit or (restarts and restarts >= limit):
        text = "Job has reached the specified backoff limit"
        yield _Cause("FailureTarget", "BackoffLimitExceeded", text)
    if any(due_s <= now_s for due_s in _deadline(job, job.get("status") or {})):
        text = "Job was active longer than specified deadline"
        yield _Cause("FailureTarget", "DeadlineExceeded", text)


def _successes(tally: _Tally, moves: _Moves) -> Iterator[_Cause]:
    """Yield that a Job has succeeded, if it has."""
    wanted = tally.job["spec"].get("completions")
    is_enough = tally.successes >= (1 if wanted is None else wanted)
    left = len(tally.active) - len(moves.deletes) + len(moves.creates)
    if is_enough and not left:
        text = "Reached expected number of succeeded pods"
        yield _Cause("SuccessCriteriaMet", "CompletionsReached", text)


def _manage(tally: _Tally, now_s: float, free_s: float) -> _Moves:
    """Decide how many pods there are to be.

    Args:
        tally: The Job.
        now_s: Unix seconds.
        free_s: When the back-off is over.
    """
    spec, active = tally.job["spec"], len(tally.active)
    if spec["suspend"]:
        return _Moves(deletes=tally.active, are_forgotten=True)
    wanted = _wanted(tally)
    if surplus := _surplus(tally, active - wanted):
        return _Moves(deletes=surplus, are_forgotten=True)
    awaited = tally.terminating if _awaits_ends(tally.job) else 0
    missing = wanted - awaited - active
    if missing > 0 and free_s > now_s:
        return _Moves(waits_until_s=(free_s,))
    return _Moves(creates=_new_indexes(tally, max(missing, 0)))


def _new_indexes(tally: _Tally, count: int) -> tuple[int, ...]:
    """Return the indexes of so many new pods: the lowest ones that no pod has."""
    if not tally.is_indexed:
        return (NO_INDEX,) * count
    awaits_ends = _awaits_ends(tally.job)
    had = {
        pod.index
        for pod in tally.pods
        if pod.is_active or (awaits_ends and pod.is_terminating)
    }
    every = range(tally.job["spec"]["completions"])
    free = filterfalse((had | tally.done).__contains__, every)
    return tuple(islice(free, count))


def _wanted(tally: _Tally) -> int:
    """Return how many pods are to be active."""
    spec, parallelism = tally.job["spec"], tally.job["spec"]["parallelism"]
    if "completions" in spec:
        left = spec["completions"] - tally.successes
        return int(max(min(left, parallelism), 0))
    return len(tally.active) if tally.successes else int(parallelism)


def _surplus(tally: _Tally, least: int) -> tuple[JobPod, ...]:
    """Return active pods that are too many: those of a wrong index or of one twice.

    Args:
        tally: The Job.
        least: How many have to go at least.
    """
    ranked = sorted(tally.active, key=lambda pod: pod.worth, reverse=True)
    best: dict[object, JobPod] = {}
    for pod in ranked:
        if _is_valid(tally.job, pod):
            best.setdefault(pod.index if tally.is_indexed else pod.uid, pod)
    right = {*best.values()}
    wrong = [pod for pod in ranked if pod not in right]
    lesser = [pod for pod in reversed(ranked) if pod in right]
    return (*wrong, *lesser[: max(least - len(wrong), 0)])


def _status(
    tally: _Tally,
    moves: _Moves,
    end: _Cause | None,
    now_s: float,
    *,
    is_settled: bool,
) -> Object:
    """Return the Job's status after these moves.

    Args:
        tally: The Job.
        moves: What its pods do.
        end: How it ends.
        now_s: Unix seconds.
        is_settled: Whether no pod has a finalizer to lose.
    """
    job, gone = tally.job, {*moves.deletes}
    before = job.get("status") or {}
    ready = sum(pod.is_ready for pod in tally.active if pod not in gone)
    uncounted = _uncounted(tally, end)
    status: Object = {
        **before,
        "active": len(tally.active) - len(gone) + len(moves.creates),
        "ready": ready,
        "terminating": tally.terminating + len(gone),
        "succeeded": tally.counted["succeeded"],
        "failed": tally.counted["failed"],
        "uncountedTerminatedPods": {kind: u for kind, u in uncounted.items() if u},
    }
    if tally.is_indexed:
        status["succeeded"] = len(tally.done)
        status["completedIndexes"] = indexes.render(tally.done)
    if not job["spec"]["suspend"]:
        status.setdefault("startTime", clock.rfc3339(now_s))
    if end is not None:
        _set(status, end.at(now_s))
        is_open = status["uncountedTerminatedPods"] or status["terminating"]
        if is_settled and not is_open:
            last = replace(end, type=_ENDS[end.type]).at(now_s)
            _set(status, last)
            if last["type"] == _COMPLETE:
                status["completionTime"] = last["lastTransitionTime"]
    return {
        key: value for key, value in status.items() if value or key not in _LEFT_OUT
    }


def _uncounted(tally: _Tally, end: _Cause | None) -> dict[str, list[str]]:
    """Return the UIDs of pods whose end the next steps are to count."""
    job, noted = tally.job, tally.uncounted
    failed = [pod.uid for pod in tally.blamed]
    if end is not None and _ENDS[end.type] == _FAILED:
        # What still runs when a Job has failed has failed as well.
        failed += [
            pod.uid
            for pod in tally.pods
            if pod.is_tracked
            and (pod.is_active or pod.is_terminating)
            and _is_valid(job, pod)
            and _is_blamed(job, pod)
        ]
    succeeded = [] if tally.is_indexed else [pod.uid for pod in tally.succeeded]
    return {
        "succeeded": [*dict.fromkeys([*noted["succeeded"], *succeeded])],
        "failed": [*dict.fromkeys([*noted["failed"], *failed])],
    }


def _tell_suspension(job: Object, status: Object, now_s: float) -> None:
    """Write into a status whether its Job is suspended; a start is a new one then."""
    was = any(_true_conditions(job, "Suspended"))
    if job["spec"]["suspend"] and not was:
        _set(status, _Cause("Suspended", "JobSuspended", "Job suspended").at(now_s))
        status.pop("startTime", None)
    elif was and not job["spec"]["suspend"]:
        cause = _Cause("Suspended", "JobResumed", "Job resumed")
        _set(status, cause.at(now_s, "False"))
        status["startTime"] = clock.rfc3339(now_s)


def _move(moves: _Moves) -> Iterator[Write]:
    for pod in moves.deletes:
        if moves.are_forgotten and pod.is_tracked:
            yield Release(pod)
        yield Delete(pod)
    yield from map(Create, moves.creates)


def _tell(job: Object, status: Object) -> Iterator[Write]:
    if status != job.get("status"):
        yield Tell(status)


def _set(status: Object, condition: Object) -> None:
    """Set a condition; one that says the same already stays as it is."""
    conditions = list(status.get("conditions") or ())
    kinds = [each["type"] for each in conditions]
    if condition["type"] not in kinds:
        conditions.append(condition)
    else:
        place = kinds.index(condition["type"])
        if conditions[place]["status"] != condition["status"]:
            conditions[place] = condition
    status["conditions"] = conditions


def _deadline(job: Object, status: Object) -> Iterator[float]:
    """Yield when a Job will have been active for too long, in Unix seconds."""
    most_s, start = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if most_s is not None and start and not job["spec"]["suspend"]:
        yield (clock.parse_time(start) or 0.0) + most_s


def _restarts(tally: _Tally) -> int:
    """Return how often containers of pods that restart in place have done so."""
    if tally.job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return 0
    statuses = [
        pod.source["status"]
        for pod in tally.pods
        if pod.phase in {"Pending", "Running"}
    ]
    return sum(
        container.get("restartCount", 0)
        for status in statuses
        for part in ("initContainerStatuses", "containerStatuses")
        for container in status.get(part) or ()
    )


def _true_conditions(job: Object, *kinds: str) -> Iterator[Object]:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in kinds and condition["status"] == "True":
            yield condition


def _has_failed(job: Object, pod: JobPod) -> bool:
    """Whether a pod counts as failed: a deleted one at once, unless ends are awaited.

    A pod that nobody is left to end would never become Failed.
    """
    if pod.phase == "Failed" or _awaits_ends(job):
        return pod.phase == "Failed"
    return pod.is_terminating


def _awaits_ends(job: Object) -> bool:
    """Whether a pod is replaced only when it has ended, not when it begins to."""
    spec = job["spec"]
    return spec["podReplacementPolicy"] == "Failed" or "podFailurePolicy" in spec


def _is_blamed(job: Object, pod: JobPod) -> bool:
    rule = match(job, pod)
    return rule is None or rule.action != "Ignore"


def _is_indexed(job: Object) -> bool:
    return bool(job["spec"]["completionMode"] == "Indexed")


def _is_valid(job: Object, pod: JobPod) -> bool:
    """Whether a pod has an index that its Job has; of other Jobs, any pod."""
    return not _is_indexed(job) or 0 <= pod.index < job["spec"]["completions"]
