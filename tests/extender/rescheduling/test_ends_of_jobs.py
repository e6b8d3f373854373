"""What an eviction does to Jobs, JobSets, LeaderWorkerSets and sets of pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from extender.rescheduling.ends import End, Reach
from tests.extender.rescheduling.controllers import (
    ALONE,
    NONE,
    WHOLE,
    Case,
    case,
    ends,
    group,
    job,
    resource,
    unknown,
)

IGNORE = "; begin its podFailurePolicy with a rule that ignores DisruptionTarget"
RESTART = "; begin its failurePolicy with a rule RestartJobSetAndIgnoreMaxRestarts"
DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget"}]}
JOB_KEY = "jobset.sigs.k8s.io/job-key"
GROUP_KEY = "leaderworkerset.sigs.k8s.io/group-key"
LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
WORKER = {"leaderworkerset.sigs.k8s.io/worker-index": "2"}
FAILED_ONCE = {"batch.kubernetes.io/job-index-failure-count": "1"}
DRIVER = {"jobset.sigs.k8s.io/replicatedjob-name": "driver"}


def policy(*rules: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A Job with a podFailurePolicy, which fails with the first failure that counts."""
    return job(podFailurePolicy={"rules": [*rules]}, backoffLimit=0, **spec)


def on(action: str, operator: str = "", *codes: int) -> dict[str, Any]:
    """A rule of a podFailurePolicy for exit codes; without codes, for evicted pods."""
    if not codes:
        return {"action": action, **DISRUPTED}
    return {"action": action, "onExitCodes": {"operator": operator, "values": [*codes]}}


#: A Job that fails if one of its pods is evicted, and one that does not.
FRAGILE, ROBUST = job(backoffLimit=0), policy(on("Ignore"))


def job_set(
    *rules: Mapping[str, Any], status: Mapping[str, Any] = NONE, **failures: Any
) -> dict[str, Any]:
    """A JobSet with a failurePolicy."""
    failures = {"maxRestarts": 2, "rules": [*rules], **failures}
    spec = {"failurePolicy": failures}
    return resource("jobset.x-k8s.io/v1alpha2", "JobSet", spec=spec, status=status)


def worker_set(restart_policy: str | None = None) -> dict[str, Any]:
    template = {"size": 4, "restartPolicy": restart_policy}
    spec = {"leaderWorkerTemplate": template}
    return resource("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec=spec)


def used_up(limit: int, failed: int) -> End:
    """The end of a Job by its backoffLimit."""
    why = f"evicted pods of the Job count against backoffLimit {limit}"
    return ends(f"{why}, of which {failed} are used up{IGNORE}")


def failed_by(rule: int, part: str = "Job", reach: Reach = Reach.JOB) -> End:
    why = f"the rule at index {rule} of podFailurePolicy would fail the {part}"
    return ends(why + IGNORE, reach)


def set_used_up(limit: int = 2) -> End:
    """The end of a JobSet by its maxRestarts."""
    why = "its Job would fail (BackoffLimitExceeded), and maxRestarts"
    return ends(f"{why} {limit} is used up{RESTART}")


CASES: dict[str, tuple[Case, End]] = {
    # Jobs
    "a Job makes the pod again": (case(job(backoffLimit=1)), ALONE),
    "a Job with a podFailurePolicy makes the pod again": (
        case(job(podFailurePolicy={"rules": [on("Count")]})),
        ALONE,
    ),
    "a Job without backoffLimit bears six failures": (case(job({"failed": 5})), ALONE),
    "a seventh failure ends a Job without backoffLimit": (
        case(job({"failed": 6})),
        used_up(6, 6),
    ),
    "a Job whose pods are never restarted by a kubelet counts them alike": (
        case(job(template={"spec": {"restartPolicy": "Never"}})),
        ALONE,
    ),
    "one eviction ends a Job with backoffLimit 0": (case(FRAGILE), used_up(0, 0)),
    "a failed pod that the Job has not counted yet counts": (
        case(job({"uncountedTerminatedPods": {"failed": ["u"]}}, backoffLimit=1)),
        used_up(1, 1),
    ),
    "pods that are evicted together count one by one": (
        case(job(backoffLimit=2), count=3),
        used_up(2, 0),
    ),
    "as many pods as backoffLimit says may be evicted together": (
        case(job(backoffLimit=2), count=2),
        ALONE,
    ),
    "evictions that are ignored are free": (case(ROBUST, count=99), ALONE),
    "a rule for another condition does not ignore evictions": (
        case(policy({"action": "Ignore", "onPodConditions": [{"type": "Other"}]})),
        used_up(0, 0),
    ),
    "a rule for pods without the condition does not ignore evictions": (
        case(
            policy(
                {
                    "action": "Ignore",
                    "onPodConditions": [
                        {"type": "DisruptionTarget", "status": "False"}
                    ],
                }
            )
        ),
        used_up(0, 0),
    ),
    "a rule that counts evictions uses up backoffLimit": (
        case(policy(on("Count"), on("Ignore"))),
        used_up(0, 0),
    ),
    "a rule that fails the Job by SIGTERM comes before": (
        case(policy(on("FailJob", "In", 143), on("Ignore"))),
        failed_by(0),
    ),
    "a rule that fails the Job by any code but one comes before": (
        case(policy(on("Ignore", "In", 7), on("FailJob", "NotIn", 42), on("Ignore"))),
        failed_by(1),
    ),
    "a rule that fails the Job as programs do that end themselves comes before": (
        case(policy(on("FailJob", "In", 1), on("Ignore"))),
        failed_by(0),
    ),
    "a rule for a code that no eviction has is of no concern": (
        case(policy(on("FailJob", "In", 42), on("Ignore"))),
        ALONE,
    ),
    "a rule that fails the Job is of no concern behind one that ignores evictions": (
        case(policy(on("Ignore"), on("FailJob", "In", 143))),
        ALONE,
    ),
    "a rule that fails the Job for evicted pods": (
        case(policy(on("FailJob"))),
        failed_by(0),
    ),
    "ignored exit codes do not cover a pod without one": (
        case(policy(on("Ignore", "In", 1, 137, 143))),
        used_up(0, 0),
    ),
    "an action that nobody knows ends the Job": (
        case(policy(on("Ignore", "In", 7), on("Pause"))),
        unknown("Job.spec.podFailurePolicy.rules[1].action", "Pause"),
    ),
    "an operator that nobody knows ends the Job": (
        case(policy(on("Ignore", "Above", 7))),
        unknown("Job.spec.podFailurePolicy.rules[0].onExitCodes.operator", "Above"),
    ),
    "a Job with a limit for each index has no other": (
        case(job({"failed": 99}, backoffLimitPerIndex=1)),
        ALONE,
    ),
    "an index that has used up its limit is not run again": (
        case(job(backoffLimitPerIndex=1), pod=FAILED_ONCE),
        ends(f"the pod's index has used up backoffLimitPerIndex 1{IGNORE}", Reach.POD),
    ),
    "a number of failures that is none counts as none": (
        case(
            job(backoffLimitPerIndex=1),
            pod={"batch.kubernetes.io/job-index-failure-count": "-1"},
        ),
        ALONE,
    ),
    "a rule that fails the index": (
        case(policy(on("FailIndex"), backoffLimitPerIndex=9)),
        failed_by(0, "pod's index", Reach.POD),
    ),
    "a Job ends when more indexes fail than may": (
        case(
            job({"failedIndexes": "0,3-5"}, backoffLimitPerIndex=0, maxFailedIndexes=4)
        ),
        ends(
            f"more indexes of the Job would fail than maxFailedIndexes 4{IGNORE}",
        ),
    ),
    "a Job that may have another failed index goes on without it": (
        case(
            job({"failedIndexes": "0,3-5"}, backoffLimitPerIndex=0, maxFailedIndexes=5)
        ),
        ends(f"the pod's index has used up backoffLimitPerIndex 0{IGNORE}", Reach.POD),
    ),
    "a work queue of which a pod has succeeded makes no other": (
        case(job({"succeeded": 1}, completions=None)),
        ends(
            "a pod of the Job has succeeded, so no other is made again; "
            "write completions",
            Reach.POD,
        ),
    ),
    "a Job with completions makes pods after one has succeeded": (
        case(job({"succeeded": 1})),
        ALONE,
    ),
    # JobSets
    "a Job that goes on leaves its JobSet alone": (
        case(ROBUST, job_set(maxRestarts=0)),
        ALONE,
    ),
    "a JobSet without failurePolicy fails with a Job": (
        case(FRAGILE, resource("jobset.x-k8s.io/v1alpha2", "JobSet", spec={})),
        ends(f"the JobSet would fail as its Job (BackoffLimitExceeded){RESTART}"),
    ),
    "a JobSet restarts as a whole": (case(FRAGILE, job_set()), WHOLE),
    "pods that are evicted together fail a Job, and its JobSet restarts": (
        case(job(), job_set(), count=8),
        WHOLE,
    ),
    "a JobSet restarts if one of the exit codes fails its Job": (
        case(policy(on("FailJob", "In", 143), on("Ignore")), job_set()),
        WHOLE,
    ),
    "a JobSet has used up its restarts": (
        case(FRAGILE, job_set(status={"restarts": 5, "restartsCountTowardsMax": 2})),
        set_used_up(),
    ),
    "restarts of single Jobs are restarts of the JobSet": (
        case(
            FRAGILE,
            job_set(
                status={
                    "restartsCountTowardsMax": 1,
                    "replicatedJobsStatus": [{"jobRestartsCountTowardsMax": [0, 1]}],
                }
            ),
        ),
        set_used_up(),
    ),
    "a JobSet without maxRestarts restarts never": (
        case(FRAGILE, job_set(maxRestarts=None)),
        set_used_up(limit=0),
    ),
    "a restart that ignores the limit has none": (
        case(
            FRAGILE,
            job_set({"action": "RestartJobSetAndIgnoreMaxRestarts"}, maxRestarts=0),
        ),
        WHOLE,
    ),
    "a rule that fails the JobSet": (
        case(FRAGILE, job_set({"action": "FailJobSet"})),
        ends(
            f"the rule at index 0 of failurePolicy would fail the JobSet{RESTART}",
        ),
    ),
    "a JobSet restarts the Job alone": (
        case(FRAGILE, job_set({"action": "RestartJob"})),
        group(JOB_KEY),
    ),
    "a restart of the Job alone counts": (
        case(FRAGILE, job_set({"action": "RestartJob"}, maxRestarts=0)),
        set_used_up(limit=0),
    ),
    "a JobSet restarts the Job alone without a limit": (
        case(
            FRAGILE,
            job_set({"action": "RestartJobAndIgnoreMaxRestarts"}, maxRestarts=0),
        ),
        group(JOB_KEY),
    ),
    "a rule for another reason does not apply": (
        case(
            FRAGILE,
            job_set(
                {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
            ),
        ),
        WHOLE,
    ),
    "a rule for the reason of a podFailurePolicy applies": (
        case(
            policy(on("FailJob")),
            job_set(
                {"action": "RestartJob", "onJobFailureReasons": ["PodFailurePolicy"]}
            ),
        ),
        group(JOB_KEY),
    ),
    "an action that is not known lets nobody be evicted": (
        case(FRAGILE, job_set({"action": "RestartJobSetSlowly"})),
        ends(
            "JobSet.spec.failurePolicy.rules[0].action: expected a value that the "
            "extender knows, found 'RestartJobSetSlowly'"
        ),
    ),
    "a rule for the reason of failed indexes applies": (
        case(
            job(backoffLimitPerIndex=0, maxFailedIndexes=0),
            job_set(
                {
                    "action": "RestartJob",
                    "onJobFailureReasons": ["MaxFailedIndexesExceeded"],
                }
            ),
        ),
        group(JOB_KEY),
    ),
    "a failed index is not made again in a JobSet": (
        case(job(backoffLimitPerIndex=0), job_set()),
        ends(f"the pod's index has used up backoffLimitPerIndex 0{IGNORE}", Reach.POD),
    ),
    "a pod that may not be made again is worse than a JobSet that restarts": (
        case(
            policy(on("FailIndex", "In", 143), backoffLimitPerIndex=9),
            job_set(),
        ),
        failed_by(0, "pod's index", Reach.POD),
    ),
    "a rule for other replicated jobs does not apply": (
        case(
            FRAGILE,
            job_set({"action": "FailJobSet", "targetReplicatedJobs": ["worker"]}),
            pod=DRIVER,
        ),
        WHOLE,
    ),
    "a rule for the pod's replicated job applies": (
        case(
            FRAGILE,
            job_set({"action": "RestartJob", "targetReplicatedJobs": ["driver"]}),
            pod=DRIVER,
        ),
        group(JOB_KEY),
    ),
    "the first rule that applies decides": (
        case(FRAGILE, job_set({"action": "RestartJob"}, {"action": "FailJobSet"})),
        group(JOB_KEY),
    ),
    "of a rule that asks for a message and the next one the worse counts": (
        case(
            FRAGILE,
            job_set(
                {"action": "RestartJob", "onJobFailureMessagePatterns": ["^x"]},
                {"action": "RestartJobSet"},
            ),
        ),
        WHOLE,
    ),
    "an action of a JobSet that nobody knows ends it": (
        case(FRAGILE, job_set({"action": "Pause"})),
        unknown("JobSet.spec.failurePolicy.rules[0].action", "Pause"),
    ),
    "a JobSet that has ended makes no Job": (
        case(ROBUST, job_set(status={"terminalState": "Failed"})),
        ends("JobSet has ended or is being deleted"),
    ),
    "a JobSet starts containers again in place": (
        case(ROBUST, job_set(restartStrategy="InPlaceRestart")),
        ALONE,
    ),
    "attempts in place are limited by maxRestarts": (
        case(
            ROBUST,
            job_set(
                restartStrategy="InPlaceRestart",
                status={"currentInPlaceRestartAttempt": 2},
            ),
        ),
        ends("the JobSet has used up maxRestarts 2; write a higher number"),
    ),
    "restarts that do not count are no attempts": (
        case(
            ROBUST,
            job_set(
                restartStrategy="InPlaceRestart",
                status={"currentInPlaceRestartAttempt": 2, "restarts": 1},
            ),
        ),
        ALONE,
    ),
    "a Job that fails is made again also by a JobSet that restarts in place": (
        case(FRAGILE, job_set(restartStrategy="InPlaceRestart")),
        WHOLE,
    ),
    # LeaderWorkerSets
    "a group is made again as a whole by default": (
        case(worker_set(), pod=WORKER),
        group(GROUP_KEY),
    ),
    "a group that has started is made again as a whole": (
        case(worker_set("RecreateGroupAfterStart"), pod=WORKER),
        group(GROUP_KEY),
    ),
    "a group is made again with its leader": (
        case(worker_set("RecreateGroupOnPodRestart"), pod=LEADER),
        group(GROUP_KEY),
    ),
    "a worker is made again alone without a restart policy": (
        case(worker_set("None"), pod=WORKER),
        ALONE,
    ),
    "the old name of no restart policy means the same": (
        case(worker_set("Default"), pod=WORKER),
        ALONE,
    ),
    "the workers end with their leader without a restart policy": (
        case(worker_set("None"), pod=LEADER),
        group(GROUP_KEY),
    ),
    "a restart policy of groups that nobody knows": (
        case(worker_set("Pause"), pod=WORKER),
        unknown("LeaderWorkerSet.spec.leaderWorkerTemplate.restartPolicy", "Pause"),
    ),
    # Sets of pods
    "a ReplicaSet makes the pod again at once": (
        case(resource("apps/v1", "ReplicaSet")),
        ALONE,
    ),
    "a StatefulSet makes the pod again when it has ended": (
        case(resource("apps/v1", "StatefulSet")),
        ALONE,
    ),
    "a DaemonSet makes the pod again on its node": (
        case(resource("apps/v1", "DaemonSet")),
        ends("a DaemonSet makes the pod again on the same node", Reach.POD),
    ),
}


@pytest.mark.parametrize(
    ("pods", "wait_s"),
    [
        (case(job(backoffLimit=99), count=3), None),
        (case(job(backoffLimit=99), count=4), 80),
        (case(job({"failed": 3}, backoffLimit=99)), 80),
        (case(policy(on("Ignore")), count=6), 320),
        (case(job(backoffLimit=9999), count=5000), 600),
        (case(job(backoffLimitPerIndex=9), count=5000), None),
    ],
    ids=["40 s", "four", "the fourth", "ignored", "at most", "by index"],
)
def test_a_job_that_makes_its_pods_again_late_says_so(
    pods: Case, wait_s: int | None
) -> None:
    said = f" only {wait_s} s after " in pods.end.remark

    assert said if wait_s is not None else not pods.end.remark


@pytest.mark.parametrize("name", CASES)
def test_an_eviction_does_to_a_job_what_its_controller_does(name: str) -> None:
    pods, end = CASES[name]

    assert pods.end == end
