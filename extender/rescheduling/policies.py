"""Which rows of `ends` apply to a pod, read from the objects of its controllers.

An eviction has several outcomes where a policy asks for the exit code, since a program
may answer SIGTERM by any. The worst of them counts. A field with an unknown value
counts as the end of the job, so no pod is evicted for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from extender.gang.size import count_indexes
from extender.rescheduling.ends import ENDS, End, Policy
from kube.objects import Meta
from scheduler_core.documents.reader import DocumentError, Part, WrongError, read
from scheduler_core.wire.annotations import parse_count
from scheduler_core.wire.typed import as_array, as_integer, as_object, as_string

T = TypeVar("T")

#: annotation of a pod of a Job: how often its index has failed
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
#: label of a pod of an AscendJob: how often pods were made again before it
VERSION = "version"
#: label of an AscendJob: how often its pods may be made again
RETRY_TIMES = "fault-retry-times"
#: annotations of a RayCluster: its work survives its head; no head is made again
RAY_SURVIVES = "ray.io/ft-enabled"
RAY_ONE_HEAD = "ray.io/disable-provisioned-head-restart"

#: exit codes of an evicted container: none is known, a program ended by itself, as
#: torchrun does, SIGKILL, SIGTERM
_EXIT_CODES = (None, 1, 137, 143)
#: conditions of jobs that make no pod again, and such phases of Volcano Jobs
_FINAL = {
    *("Complete", "Completed", "Failed", "FailureTarget"),
    *("SuccessCriteriaMet", "Succeeded"),
}
_FINAL_PHASES = {
    *("Aborted", "Aborting", "Completed", "Completing"),
    *("Failed", "Terminated", "Terminating"),
}
#: `managedBy` for the controllers of the table, without their domains
_MANAGERS = {
    *("job-controller", "jobset-controller", "kuberay-operator"),
    *("mpi-operator", "training-operator"),
}
#: {policy by which a Job fails: reason that the Job then has}
_FAILURES = {
    "backoffLimit": "BackoffLimitExceeded",
    "FailJob": "PodFailurePolicy",
    "maxFailedIndexes": "MaxFailedIndexesExceeded",
}
#: seconds that a Job waits after a failed pod: after the first, doubled with each, at
#: most; and from when on people are told
_BACKOFF_S, _LONGEST_BACKOFF_S, _LONG_S = 10, 600, 60
#: limits of a Job and of a Volcano Job that state none
_BACKOFF_LIMIT, _MAX_RETRY, _NO_LIMIT = 6, 3, (1 << 31) - 1
_VOLCANO, _SYNC, _IN_PLACE = "batch.volcano.sh", "SyncJob", "InPlaceRestart"


def end_of(controllers: Sequence[object], pod: Meta, count: int = 1) -> End:
    """Return what the eviction of a pod does to its job; arguments as `policies_of`."""
    policies = policies_of(controllers, pod, count)
    worst = max(policies, key=lambda policy: (policy.end.replacement, policy.end.reach))
    return replace(
        worst.end,
        reason=worst.end.reason.format_map(worst.values),
        remark=worst.remark,
    )


def policies_of(
    controllers: Sequence[object], pod: Meta, count: int = 1
) -> tuple[Policy, ...]:
    """Return the policies of which one applies to the eviction of a pod.

    Args:
        controllers: Objects of the pod's controllers as the API server has them, the
            pod's own first: a Job, then the JobSet that owns it. A LeaderWorkerSet
            stands in place of its StatefulSets. Of a ReplicaSet, StatefulSet or
            DaemonSet, `apiVersion` and `kind` are enough. Empty without a controller.
        pod: Labels and annotations of the pod.
        count: How many pods of these controllers are evicted together; at least 1.
    """
    try:
        return read(None, lambda root: _read(root, controllers, pod, count))
    except DocumentError as error:
        return (Policy(name="unreadable", values={"problem": error.problems[0]}),)


def is_over(controller: object) -> bool:
    """Return whether a controller is being deleted, or is a job that has ended."""
    try:
        return read(None, lambda root: _is_over(_controller(root, controller)))
    except DocumentError:
        return False


def _read(
    root: Part, controllers: Sequence[object], pod: Meta, count: int
) -> tuple[Policy, ...]:
    objects = [_controller(root, value) for value in controllers]
    if not objects:
        return (Policy(name="none"),)
    own, *owners = objects
    reader = _READERS.get((_api_group(own), own.text("kind")))
    if reader is None:
        return (_common("unknown", own),)
    for controller in objects:
        if _is_over(controller):
            return (_common("over", controller),)
        if not _has_known_manager(controller):
            return (_common("unknown", controller),)
    facts = _Facts(
        own=own,
        owners=owners,
        spec=own.at("spec"),
        status=own.at("status"),
        labels=pod.labels or {},
        annotations=pod.annotations or {},
        count=count,
    )
    return tuple(reader(facts))


def _common(name: str, controller: "_Object") -> Policy:
    kind = controller.text("kind") or "its controller"
    return Policy(name=name, values={"kind": kind})


@dataclass(frozen=True, slots=True)
class _Object:
    """Object of the API server, or a part of one; an absent field counts as empty.

    A field of another type than is read raises `WrongError`.
    """

    part: Part

    @property
    def fields(self) -> Mapping[str, object]:
        return {} if self.part.value is None else self.part.narrowed(as_object)

    def at(self, *keys: str) -> "_Object":
        found = self
        for key in keys:
            found = _Object(found.part.under(key, found.fields.get(key)))
        return found

    def has(self, key: str) -> bool:
        return self.fields.get(key) is not None

    def items(self, key: str) -> list["_Object"]:
        part = self.at(key).part
        values = part.narrowed(as_array) if self.has(key) else ()
        return [_Object(part.under(index, value)) for index, value in enumerate(values)]

    def values(self, key: str, narrow: Callable[[object, str], T]) -> list[T]:
        return [item.part.narrowed(narrow) for item in self.items(key)]

    def text(self, key: str, default: str = "") -> str:
        return self.at(key).part.narrowed(as_string) if self.has(key) else default

    def number(self, key: str, default: int = 0) -> int:
        value = self.at(key).part.narrowed(as_integer) if self.has(key) else default
        if value < 0:
            raise self.at(key).part.wrong("a number of at least 0")
        return value

    def unknown(self, key: str) -> WrongError:
        """Report a value that no row has; return the error to raise."""
        return self.at(key).part.wrong("a value that the extender knows")


def _controller(root: Part, value: object) -> _Object:
    """Return the object of a controller; its problems begin with its kind."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return _Object(root.under(kind if isinstance(kind, str) else "controller", value))


def _api_group(controller: _Object) -> str:
    return controller.text("apiVersion").rpartition("/")[0]


def _is_over(controller: _Object) -> bool:
    """Whether a controller is being deleted, or is a job that has ended."""
    status = controller.at("status")
    is_volcanos = _api_group(controller) == _VOLCANO
    return (
        controller.at("metadata").has("deletionTimestamp")
        or status.has("terminalState")
        or (is_volcanos and status.at("state").text("phase") in _FINAL_PHASES)
        or any(
            condition.text("type") in _FINAL and condition.text("status") == "True"
            for condition in status.items("conditions")
        )
    )


def _has_known_manager(controller: _Object) -> bool:
    spec = controller.at("spec")
    managers = spec.text("managedBy"), spec.at("runPolicy").text("managedBy")
    return _MANAGERS.issuperset(name.rpartition("/")[2] for name in managers if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """All that the readers of policies look at."""

    #: the pod's own controller, and the controllers that own this one
    own: _Object
    owners: Sequence[_Object]
    #: of the pod's own controller
    spec: _Object
    status: _Object
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    count: int

    def label(self, key: str) -> str:
        return self.labels.get(key, "")


def _always(kind: str) -> Callable[[_Facts], list[Policy]]:
    return lambda _: [Policy(kind=kind, name="any")]


def _job(facts: _Facts) -> Iterator[Policy]:
    """Yield policies of a Job, and of the JobSet that owns it.

    A JobSet acts if the Job fails, or if it begins again in place.
    """
    owners = (owner for owner in facts.owners if owner.text("kind") == "JobSet")
    owner = next(owners, None)
    for policy in _policies_of_job(facts):
        if owner is None:
            yield policy
        elif policy.name in _FAILURES:
            yield from _policies_of_set(owner, _FAILURES[policy.name], facts)
        elif owner.at("spec", "failurePolicy").text("restartStrategy") == _IN_PLACE:
            yield _in_place(owner)
        else:
            yield policy


def _policies_of_job(facts: _Facts) -> Iterator[Policy]:
    if not facts.spec.has("completions") and facts.status.number("succeeded"):
        yield Policy(kind="Job", name="succeeded")
        return
    rules = facts.spec.at("podFailurePolicy").items("rules")
    for number in dict.fromkeys(_first_match(rules, code) for code in _EXIT_CODES):
        action = "Count" if number is None else rules[number].text("action")
        values = {"rule": number}
        if action == "Count":
            yield _counted(facts)
        elif action == "FailIndex":
            yield _failed_index(facts, action, values)
        elif action in ("Ignore", "FailJob"):
            remark = _describe_backoff(facts) if action == "Ignore" else ""
            yield Policy(kind="Job", name=action, values=values, remark=remark)
        else:
            raise rules[number or 0].unknown("action")


def _first_match(rules: Sequence[_Object], code: int | None) -> int | None:
    """Return the position of the first rule that an evicted pod meets; None if none.

    Args:
        code: Exit code of its container; None if none is known.
    """
    numbers = (number for number, rule in enumerate(rules) if _is_met(rule, code))
    return next(numbers, None)


def _is_met(rule: _Object, code: int | None) -> bool:
    if not rule.has("onExitCodes"):
        return any(
            pattern.text("type") == "DisruptionTarget"
            and pattern.text("status", "True") == "True"
            for pattern in rule.items("onPodConditions")
        )
    codes = rule.at("onExitCodes")
    operator = codes.text("operator")
    if operator not in ("In", "NotIn"):
        raise codes.unknown("operator")
    is_listed = code in codes.values("values", as_integer)
    return code is not None and is_listed == (operator == "In")


def _counted(facts: _Facts) -> Policy:
    """Return the policy of a Job that counts an evicted pod as failed."""
    spec, status = facts.spec, facts.status
    default = _NO_LIMIT if spec.has("backoffLimitPerIndex") else _BACKOFF_LIMIT
    limit, failed = spec.number("backoffLimit", default), _count_failed(status)
    if failed + facts.count > limit:
        values = {"limit": limit, "failed": failed}
        return Policy(kind="Job", name="backoffLimit", values=values)
    limit = spec.number("backoffLimitPerIndex", _NO_LIMIT)
    failures = parse_count(facts.annotations.get(INDEX_FAILURES, "")) or 0
    if failures >= limit:
        return _failed_index(facts, "backoffLimitPerIndex", {"limit": limit})
    return Policy(kind="Job", name="counted", remark=_describe_backoff(facts))


def _count_failed(status: _Object) -> int:
    uncounted = status.at("uncountedTerminatedPods").items("failed")
    return status.number("failed") + len(uncounted)


def _describe_backoff(facts: _Facts) -> str:
    """Return how long a Job waits before it makes evicted pods again; "" if not long.

    It counts all pods that have failed since one succeeded, also those that its
    podFailurePolicy ignores, but not apart for each index unless it is told to.

    Source:
        kubernetes v1.36.3, pkg/controller/job/backoff_utils.go, getRemainingTime.
    """
    failed = _count_failed(facts.status) + facts.count
    wait_s = min(_BACKOFF_S << min(failed - 1, 10), _LONGEST_BACKOFF_S)
    if wait_s < _LONG_S or facts.spec.has("backoffLimitPerIndex"):
        return ""
    return (
        f"its Job makes pods again only {wait_s} s after they have ended, as {failed} "
        "have failed then; write backoffLimitPerIndex, or run it by a JobSet"
    )


def _failed_index(facts: _Facts, name: str, values: Mapping[str, object]) -> Policy:
    """Return the policy of a Job if the pod's index fails for good."""
    failed = count_indexes(facts.status.text("failedIndexes")) + facts.count
    limit = facts.spec.number("maxFailedIndexes", _NO_LIMIT)
    if failed > limit:
        return Policy(kind="Job", name="maxFailedIndexes", values={"limit": limit})
    return Policy(kind="Job", name=name, values=values)


def _policies_of_set(owner: _Object, reason: str, facts: _Facts) -> Iterator[Policy]:
    """Yield policies of a JobSet if the Job of the evicted pod fails."""
    policy, status = owner.at("spec", "failurePolicy"), owner.at("status")
    if policy.part.value is None:
        yield Policy(kind="JobSet", name="failurePolicy", values={"reason": reason})
        return
    limit = policy.number("maxRestarts")
    used = status.number("restartsCountTowardsMax") + sum(
        sum(job.values("jobRestartsCountTowardsMax", as_integer))
        for job in status.items("replicatedJobsStatus")
    )
    rules = policy.items("rules")
    role = facts.label("jobset.sigs.k8s.io/replicatedjob-name")
    for number in _possible_rules(rules, reason, role):
        action = "RestartJobSet" if number is None else rules[number].text("action")
        is_restart = action.startswith("RestartJob") and action in ENDS["JobSet"]
        if action != "FailJobSet" and not is_restart:
            raise rules[number or 0].unknown("action")
        is_used_up = used >= limit and action in ("RestartJobSet", "RestartJob")
        values = {"reason": reason, "rule": number, "limit": limit}
        name = "maxRestarts" if is_used_up else action
        yield Policy(kind="JobSet", name=name, values=values)


def _possible_rules(
    rules: Sequence[_Object], reason: str, role: str
) -> Iterator[int | None]:
    """Yield positions of the rules of a JobSet of which one applies to a failed Job.

    A rule that asks for the message of the failure may apply, or a later one. None
    stands for the default, if no rule applies.
    """
    for number, rule in enumerate(rules):
        reasons = rule.values("onJobFailureReasons", as_string) or [reason]
        roles = rule.values("targetReplicatedJobs", as_string) or [role]
        if reason in reasons and role in roles:
            yield number
            if not rule.items("onJobFailureMessagePatterns"):
                return
    yield None


def _in_place(owner: _Object) -> Policy:
    """Return the policy of a JobSet that starts containers again in place.

    The agent of the pod that is made again begins the next attempt of all pods.
    """
    status = owner.at("status")
    limit = owner.at("spec", "failurePolicy").number("maxRestarts")
    free = status.number("restarts") - status.number("restartsCountTowardsMax")
    attempt = status.number("currentInPlaceRestartAttempt") + 1
    name = "attempts" if attempt - free > limit else _IN_PLACE
    return Policy(kind="JobSet", name=name, values={"limit": limit})


def _worker_set(facts: _Facts) -> Iterator[Policy]:
    template = facts.spec.at("leaderWorkerTemplate")
    name = template.text("restartPolicy", "RecreateGroupOnPodRestart")
    if name in ("None", "Default"):
        index = facts.label("leaderworkerset.sigs.k8s.io/worker-index")
        name = "leader" if index == "0" else "None"
    elif not name.startswith("RecreateGroup"):
        raise template.unknown("restartPolicy")
    yield Policy(kind="LeaderWorkerSet", name=name)


def _volcano_job(facts: _Facts) -> Iterator[Policy]:
    """Yield policies of a Volcano Job: those of the pod's task go before the job's.

    A pod whose kubelet ends it fails first, with an exit code, and is evicted then.
    """
    spec, task = facts.spec, facts.label("volcano.sh/task-spec")
    own = [item for item in spec.items("tasks") if item.text("name") == task]
    policies = [item for holder in (*own, spec) for item in holder.items("policies")]
    limit = spec.number("maxRetry") or _MAX_RETRY
    for code in _EXIT_CODES:
        failed = "" if code is None else _first_action(policies, "PodFailed", code)
        action = failed or _first_action(policies, "PodEvicted", None) or _SYNC
        retries = 1 if action == "RestartJob" else facts.count
        is_used_up = facts.status.number("retryCount") + retries >= limit
        name = "maxRetry" if is_used_up and action.startswith("Restart") else action
        values = {"action": action, "limit": limit}
        yield Policy(kind="Volcano Job", name=name, values=values)


def _first_action(policies: Iterable[_Object], event: str, code: int | None) -> str:
    """Return the action for an event; "" if the pod is only made again."""
    for policy in policies:
        events = {policy.text("event"), *policy.values("events", as_string)}
        has_code = code is not None and policy.number("exitCode") == code
        if has_code or events & {event, "*"}:
            action = policy.text("action", _SYNC)
            if action == "maxRetry" or action not in ENDS["Volcano Job"]:
                raise policy.unknown("action")
            return "" if action == _SYNC else action
    return ""


def _training_job(facts: _Facts) -> Iterator[Policy]:
    """Yield the policy of a job of Kubeflow's training operator.

    To the operator, a pod that is being deleted has failed. A PyTorchJob, PaddleJob or
    JAXJob then looks at the restart policy of the pod's role.
    """
    kind = facts.own.text("kind")
    role = facts.label("training.kubeflow.org/replica-type")
    name = _restart_policy(facts.spec, kind, role)
    if kind in ("MPIJob", "TFJob", "XGBoostJob"):
        name = "deletion"
    elif facts.spec.at("runPolicy").number("backoffLimit", 1) == 0:
        name = "backoffLimit"
    elif name == "Always":
        name = "OnFailure"
    yield Policy(kind="Training job", name=name, values={"kind": kind, "role": role})


def _restart_policy(spec: _Object, kind: str, role: str) -> str:
    """Return the restart policy of a role in a training job."""
    restart = "OnFailure" if kind in ("PyTorchJob", "PaddleJob") else "Never"
    maps = [spec.at(key) for key in spec.fields if key.lower().endswith("replicaspecs")]
    for part in (roles.at(name) for roles in maps for name in roles.fields):
        if str(part.part.keys[-1]).lower() == role:
            restart = part.text("restartPolicy", restart)
            if restart not in ("Always", "ExitCode", "Never", "OnFailure"):
                raise part.unknown("restartPolicy")
    return restart


def _mpi_job(facts: _Facts) -> Iterable[Policy]:
    """Return the policy of an MPIJob: v1 is the training operator's."""
    is_v1 = facts.own.text("apiVersion").endswith("/v1")
    return _training_job(facts) if is_v1 else _always("MPIJob")(facts)


def _ascend_job(facts: _Facts) -> Iterator[Policy]:
    """Yield the policy of an AscendJob, whose operator counts generations of pods."""
    labels = facts.own.at("metadata", "labels")
    stated = parse_count(labels.text(RETRY_TIMES) or "0")
    if stated is None:
        raise labels.at(RETRY_TIMES).part.wrong("a number")
    limit = facts.spec.at("runPolicy").number("backoffLimit", stated)
    version = parse_count(facts.label(VERSION)) or 0
    name = "backoffLimit" if 0 < limit <= version else "any"
    yield Policy(kind="AscendJob", name=name, values={"limit": limit})


def _ray_cluster(facts: _Facts) -> Iterator[Policy]:
    spec, notes = facts.spec, facts.own.at("metadata", "annotations")
    groups = {item.text("groupName"): item for item in spec.items("workerGroupSpecs")}
    group = groups.get(facts.label("ray.io/group"))
    survives = notes.text(RAY_SURVIVES).lower() == "true"
    if facts.label("ray.io/node-type") != "head":
        hosts = group.number("numOfHosts", 1) if group is not None else 1
        name = "numOfHosts" if hosts > 1 else "worker"
    elif notes.text(RAY_ONE_HEAD) == "true":
        name = "SidecarMode"
    elif survives or spec.has("gcsFaultToleranceOptions"):
        name = "head"
    else:
        name = "gcsFaultToleranceOptions"
    yield Policy(kind="RayCluster", name=name)


_READERS: Mapping[tuple[str, str], Callable[[_Facts], Iterable[Policy]]] = {
    ("apps", "DaemonSet"): _always("DaemonSet"),
    ("apps", "ReplicaSet"): _always("ReplicaSet"),
    ("apps", "StatefulSet"): _always("StatefulSet"),
    ("batch", "Job"): _job,
    (_VOLCANO, "Job"): _volcano_job,
    ("kubeflow.org", "JAXJob"): _training_job,
    ("kubeflow.org", "MPIJob"): _mpi_job,
    ("kubeflow.org", "PaddleJob"): _training_job,
    ("kubeflow.org", "PyTorchJob"): _training_job,
    ("kubeflow.org", "TFJob"): _training_job,
    ("kubeflow.org", "XGBoostJob"): _training_job,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _worker_set,
    ("mindxdl.gitee.com", "AscendJob"): _ascend_job,
    ("ray.io", "RayCluster"): _ray_cluster,
}
