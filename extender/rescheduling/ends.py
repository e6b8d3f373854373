"""What one eviction does to a job: a table of controllers and their policies.

A controller may end more pods than the evicted one, may end the whole job, or may make
no pod again. `policies` reads from its object which row of `ENDS` applies.

Comments name the function of a controller that a row is about: Kubernetes v1.36.3,
jobset v0.12.0, lws v0.9.0, volcano ed72c7c, training-operator v1.9.0, mpi-operator
v2beta1, MindCluster's ascend-operator 22bb3d9, kuberay feeaf72.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

#: labels of pods that end together: by Job of a JobSet, group of a LeaderWorkerSet,
#: partition of a Volcano Job, replica of several hosts of a RayCluster
JOB_KEY = "jobset.sigs.k8s.io/job-key"
GROUP_KEY = "leaderworkerset.sigs.k8s.io/group-key"
PARTITION = "volcano.sh/partition-id"
RAY_REPLICA = "ray.io/worker-group-replica-name"
_TASK = ("volcano.sh/job-name", "volcano.sh/task-spec")


class Reach(IntEnum):
    """Pods that a controller ends when one of them is evicted."""

    POD = 0
    GROUP = 1
    JOB = 2


class Replacement(IntEnum):
    """Whether a controller makes the pods again that an eviction has ended."""

    YES = 0
    UNKNOWN = 1
    NO = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What one eviction does to a job."""

    reach: Reach = Reach.POD
    replacement: Replacement = Replacement.YES
    #: labels whose values the pods of the group have in common; empty without a group
    group: tuple[str, ...] = ()
    #: for people: why no pod is evicted and what to write, or what is not known
    reason: str = ""
    #: for people: why the pod is made again late; "" if it is not
    remark: str = field(default="", compare=False)
    #: path and UID of the object with which the job ends; "" if it is not read
    controller: str = field(default="", compare=False)

    @property
    def can_evict(self) -> bool:
        """Whether the job survives.

        An unknown controller counts as one that makes pods again. Making pods is what
        controllers are for, and `kubectl drain` relies on it. Its job has asked to be
        moved, and its pod can do nothing more on a broken chip.
        """
        return self.replacement is not Replacement.NO


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Policy by which a controller answers an eviction: a row of `ENDS`."""

    #: "" for a policy of all kinds
    kind: str = ""
    name: str
    #: values for the reason of the row
    values: Mapping[str, object] = field(default_factory=dict)
    #: as `End.remark`
    remark: str = ""

    @property
    def end(self) -> End:
        """What the table says, with a reason that lacks the values."""
        return ENDS[self.kind][self.name]


def _ends(why: str, advice: str = "", reach: Reach = Reach.JOB) -> End:
    reason = f"{why}; {advice}" if advice else why
    return End(reach=reach, replacement=Replacement.NO, reason=reason)


def _group(*labels: str) -> End:
    return End(reach=Reach.GROUP, group=labels)


_POD, _ALONE, _WHOLE = Reach.POD, End(), End(reach=Reach.JOB)
_UNKNOWN = "the extender does not know whether {kind} makes the pod again"
_IGNORE = "begin its podFailurePolicy with a rule that ignores DisruptionTarget"
_RESTART = "begin its failurePolicy with a rule RestartJobSetAndIgnoreMaxRestarts"
_RESTART_JOB = "write RestartJob, RestartTask or RestartPod"
_ON_FAILURE, _MORE = "write restartPolicy OnFailure", "write a higher number"

#: {kind: {policy: what one eviction does}}; most policies have the name of the field
#: or value of the object
ENDS: Mapping[str, Mapping[str, End]] = {
    "": {
        "none": _ends("no controller makes the pod again", "run it by a Job"),
        "over": _ends("{kind} has ended or is being deleted"),
        "unreadable": _ends("{problem}"),
        "unknown": End(replacement=Replacement.UNKNOWN, reason=_UNKNOWN),
    },
    "Job": {
        # matchPodFailurePolicy in pod_failure_policy.go
        "Ignore": _ALONE,
        # syncJob in job_controller.go, manageJob
        "counted": _ALONE,
        # syncJob in job_controller.go, exceedsBackoffLimit
        "backoffLimit": _ends(
            "evicted pods of the Job count against backoffLimit {limit}, of which "
            "{failed} are used up",
            _IGNORE,
        ),
        # getFailJobMessage in job_controller.go
        "FailJob": _ends(
            "the rule at index {rule} of podFailurePolicy would fail the Job", _IGNORE
        ),
        # isIndexFailed in indexed_job_utils.go, firstPendingIndexes
        "backoffLimitPerIndex": _ends(
            "the pod's index has used up backoffLimitPerIndex {limit}", _IGNORE, _POD
        ),
        "FailIndex": _ends(
            "the rule at index {rule} of podFailurePolicy would fail the pod's index",
            _IGNORE,
            _POD,
        ),
        # syncJob in job_controller.go, JobReasonMaxFailedIndexesExceeded
        "maxFailedIndexes": _ends(
            "more indexes of the Job would fail than maxFailedIndexes {limit}", _IGNORE
        ),
        # manageJob in job_controller.go, wantActive
        "succeeded": _ends(
            "a pod of the Job has succeeded, so no other is made again",
            "write completions",
            _POD,
        ),
    },
    "JobSet": {
        # executeFailurePolicy in failure_policy.go
        "failurePolicy": _ends("the JobSet would fail as its Job ({reason})", _RESTART),
        # restartJobSetActionApplier in failure_policy.go
        "maxRestarts": _ends(
            "its Job would fail ({reason}), and maxRestarts {limit} is used up",
            _RESTART,
        ),
        # failJobSetActionApplier in failure_policy.go
        "FailJobSet": _ends(
            "the rule at index {rule} of failurePolicy would fail the JobSet",
            _RESTART,
        ),
        # failurePolicyRecreateAll in failure_policy.go
        "RestartJobSet": _WHOLE,
        "RestartJobSetAndIgnoreMaxRestarts": _WHOLE,
        # failurePolicyRecreateJob in failure_policy.go, behind the gate RestartJob
        "RestartJob": _group(JOB_KEY),
        "RestartJobAndIgnoreMaxRestarts": _group(JOB_KEY),
        # reconcileInPlaceRestart in in_place_restart.go; other pods stay
        "InPlaceRestart": _ALONE,
        # exceededMaxRestarts in in_place_restart.go
        "attempts": _ends("the JobSet has used up maxRestarts {limit}", _MORE),
    },
    "LeaderWorkerSet": {
        # handleRestartPolicy in pod_controller.go
        "RecreateGroupOnPodRestart": _group(GROUP_KEY),
        # pendingPodsInGroup in pod_controller.go; if no pod is pending
        "RecreateGroupAfterStart": _group(GROUP_KEY),
        # processReplica in stateful_set_control.go
        "None": _ALONE,
        # setControllerReferenceWithStatefulSet in pod_controller.go; it owns them
        "leader": _group(GROUP_KEY),
    },
    # manageReplicas in replica_set.go
    "ReplicaSet": {"any": _ALONE},
    # processReplica in stateful_set_control.go
    "StatefulSet": {"any": _ALONE},
    "DaemonSet": {
        # podsShouldBeOnNode in daemon_controller.go
        "any": _ends("a DaemonSet makes the pod again on the same node", reach=_POD)
    },
    "Volcano Job": {
        # applyPolicies in job_controller_util.go, syncJob in job_controller_actions.go
        "SyncJob": _ALONE,
        # Execute in running.go, killPods in job_controller_actions.go
        "RestartPod": _ALONE,
        "RestartTask": _group(*_TASK),
        "RestartPartition": _group(*_TASK, PARTITION),
        "RestartJob": _WHOLE,
        "AbortJob": _ends("its policy {action} would end the job", _RESTART_JOB),
        "CompleteJob": _ends("its policy {action} would end the job", _RESTART_JOB),
        "TerminateJob": _ends("its policy {action} would end the job", _RESTART_JOB),
        # restartingUpdateStatus in restarting.go
        "maxRetry": _ends(
            "its policy {action} would end the job, as maxRetry is {limit}", _MORE
        ),
    },
    "Training job": {
        # ReconcilePods in common/pod.go, UpdateJobStatus in pytorchjob_controller.go
        "OnFailure": _ALONE,
        "Never": _ends("the {kind} ends when a {role} is deleted", _ON_FAILURE),
        "ExitCode": _ends(
            "the {kind} ends when a {role} is deleted and its program ends itself at "
            "SIGTERM, as torchrun does",
            _ON_FAILURE,
        ),
        # ReconcileJobs in common/job.go, exceedsBackoffLimit
        "backoffLimit": _ends("backoffLimit 0 would end the {kind}", _MORE),
        # UpdateJobReplicaStatuses in core/status.go, UpdateJobStatus of these kinds
        "deletion": _ends(
            "the {kind} ends when one of its pods is deleted", "run it by a JobSet"
        ),
    },
    # getOrCreateWorker in mpi_job_controller.go, updateMPIJobStatus
    "MPIJob": {"any": _ALONE},
    "AscendJob": {
        # reconcilePods in pod.go, updateJobReplicaStatuses in utils.go
        "any": _ALONE,
        # reconcileJob in job.go, onPodDeleteFunc in ascendjob_controller.go
        "backoffLimit": _ends(
            "the AscendJob has used up backoffLimit or fault-retry-times {limit}", _MORE
        ),
    },
    "RayCluster": {
        # reconcilePods in raycluster_controller.go
        "worker": _ALONE,
        # reconcileMultiHostWorkerGroup in raycluster_controller.go
        "numOfHosts": _group(RAY_REPLICA),
        # reconcilePods in raycluster_controller.go; without fault tolerance, "Case 1"
        "head": _ALONE,
        "gcsFaultToleranceOptions": _ends(
            "a RayCluster loses its work with its head",
            "write gcsFaultToleranceOptions",
        ),
        # shouldSkipHeadPodRestart in raycluster_controller.go
        "SidecarMode": _ends(
            "a RayJob in SidecarMode ends with its head", "write another submissionMode"
        ),
    },
}
