"""What an eviction does to jobs of Volcano, training operators and KubeRay."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from extender.rescheduling.ends import End
from tests.extender.rescheduling.controllers import (
    ALONE,
    NONE,
    WHOLE,
    Case,
    case,
    ends,
    group,
    resource,
    unknown,
)

TASK = ("volcano.sh/job-name", "volcano.sh/task-spec")
TASK_WORKER = {"volcano.sh/task-spec": "worker"}
ROLE = {"training.kubeflow.org/replica-type": "worker"}
RAY_HEAD = {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
RAY_ONE = {"ray.io/node-type": "worker", "ray.io/group": "one"}
RAY_MANY = {"ray.io/node-type": "worker", "ray.io/group": "many"}


def volcano(
    *policies: Mapping[str, Any],
    task: Sequence[Any] = (),
    status: Mapping[str, Any] = NONE,
    **spec: Any,
) -> dict[str, Any]:
    """A Volcano Job with policies of its own, and of its task `worker`."""
    tasks = [
        {"name": "master", "policies": [{"event": "*", "action": "AbortJob"}]},
        {"name": "worker", "policies": [*task]},
    ]
    spec = {"policies": [*policies], "tasks": tasks, **spec}
    return resource("batch.volcano.sh/v1alpha1", "Job", spec=spec, status=status)


def evicted(action: str) -> dict[str, Any]:
    """A policy of a Volcano Job for evicted pods."""
    return {"event": "PodEvicted", "action": action}


def ended_by(action: str) -> End:
    advice = "write RestartJob, RestartTask or RestartPod"
    return ends(f"its policy {action} would end the job; {advice}")


def training(
    kind: str, restart_policy: str | None = None, **run_policy: Any
) -> dict[str, Any]:
    roles = {"Master": {}, "Worker": {"restartPolicy": restart_policy}}
    spec = {f"{kind.lower()[:-3]}ReplicaSpecs": roles, "runPolicy": run_policy}
    return resource("kubeflow.org/v1", kind, spec=spec)


def ascend(labels: Mapping[str, str] = NONE, **run_policy: Any) -> dict[str, Any]:
    spec, metadata = {"runPolicy": run_policy}, {"labels": labels}
    return resource("mindxdl.gitee.com/v1", "AscendJob", metadata=metadata, spec=spec)


def ray(annotations: Mapping[str, str] = NONE, **spec: Any) -> dict[str, Any]:
    """A RayCluster with workers of one host, and of many."""
    groups = [{"groupName": "one"}, {"groupName": "many", "numOfHosts": 4}]
    spec, metadata = {"workerGroupSpecs": groups, **spec}, {"annotations": annotations}
    return resource("ray.io/v1", "RayCluster", metadata=metadata, spec=spec)


CASES: dict[str, tuple[Case, End]] = {
    # Volcano Jobs
    "a Volcano Job without a policy makes the pod again": (
        case(volcano(), pod=TASK_WORKER, count=99),
        ALONE,
    ),
    "a policy for other events does not apply": (
        case(
            volcano({"event": "TaskCompleted", "action": "CompleteJob"}),
            pod=TASK_WORKER,
        ),
        ALONE,
    ),
    "a Volcano Job restarts as a whole": (
        case(volcano(evicted("RestartJob")), pod=TASK_WORKER, count=99),
        WHOLE,
    ),
    "a policy for any event applies": (
        case(volcano({"event": "*", "action": "RestartJob"}), pod=TASK_WORKER),
        WHOLE,
    ),
    "a pod whose kubelet ends it fails first": (
        case(
            volcano(
                {"events": ["PodFailed"], "action": "RestartTask"},
                evicted("RestartPod"),
            ),
            pod=TASK_WORKER,
        ),
        group(*TASK),
    ),
    "a policy for an exit code applies": (
        case(volcano({"exitCode": 137, "action": "RestartTask"}), pod=TASK_WORKER),
        group(*TASK),
    ),
    "a policy for a code that no eviction has does not apply": (
        case(volcano({"exitCode": 42, "action": "AbortJob"}), pod=TASK_WORKER),
        ALONE,
    ),
    "a Volcano Job restarts the pod": (
        case(volcano(evicted("RestartPod")), pod=TASK_WORKER),
        ALONE,
    ),
    "a Volcano Job restarts the partition of a task": (
        case(volcano(evicted("RestartPartition")), pod=TASK_WORKER),
        group(*TASK, "volcano.sh/partition-id"),
    ),
    "the policies of the task go before those of the job": (
        case(
            volcano(evicted("AbortJob"), task=[evicted("RestartPod")]), pod=TASK_WORKER
        ),
        ALONE,
    ),
    "an explicit policy to make the pod again": (
        case(volcano(evicted("AbortJob"), task=[evicted("SyncJob")]), pod=TASK_WORKER),
        ALONE,
    ),
    "a policy that aborts the job": (
        case(volcano(evicted("AbortJob")), pod=TASK_WORKER),
        ended_by("AbortJob"),
    ),
    "a policy that completes the job": (
        case(volcano(evicted("CompleteJob")), pod=TASK_WORKER),
        ended_by("CompleteJob"),
    ),
    "a policy that terminates the job": (
        case(volcano(evicted("TerminateJob")), pod=TASK_WORKER),
        ended_by("TerminateJob"),
    ),
    "the last retry of a Volcano Job ends it": (
        case(volcano(evicted("RestartJob"), status={"retryCount": 2}), pod=TASK_WORKER),
        ends(
            "its policy RestartJob would end the job, as maxRetry is 3; write a higher "
            "number"
        ),
    ),
    "each pod that is restarted by itself is a retry": (
        case(
            volcano(evicted("RestartPod"), maxRetry=4),
            pod=TASK_WORKER,
            count=4,
        ),
        ends(
            "its policy RestartPod would end the job, as maxRetry is 4; write a higher "
            "number"
        ),
    ),
    "a Volcano Job that makes pods again has no limit": (
        case(volcano(status={"retryCount": 99}), pod=TASK_WORKER),
        ALONE,
    ),
    "an action of Volcano that nobody knows": (
        case(volcano(evicted("maxRetry")), pod=TASK_WORKER),
        unknown("Job.spec.policies[0].action", "maxRetry"),
    ),
    "a Volcano Job that has ended makes no pod": (
        case(volcano(status={"state": {"phase": "Aborted"}}), pod=TASK_WORKER),
        ends("Job has ended or is being deleted"),
    ),
    # Training jobs
    "a PyTorchJob restarts its pods by default": (
        case(training("PyTorchJob"), pod=ROLE),
        ALONE,
    ),
    "a PyTorchJob that restarts always": (
        case(training("PyTorchJob", "Always"), pod=ROLE),
        ALONE,
    ),
    "a backoffLimit of 1 bears evictions": (
        case(training("PyTorchJob", "OnFailure", backoffLimit=1), pod=ROLE, count=9),
        ALONE,
    ),
    "a backoffLimit of 0 bears none": (
        case(training("PyTorchJob", "OnFailure", backoffLimit=0), pod=ROLE),
        ends("backoffLimit 0 would end the PyTorchJob; write a higher number"),
    ),
    "a PyTorchJob that never restarts ends": (
        case(training("PyTorchJob", "Never"), pod=ROLE),
        ends(
            "the PyTorchJob ends when a worker is deleted; "
            "write restartPolicy OnFailure"
        ),
    ),
    "a PyTorchJob that looks at exit codes may end": (
        case(training("PyTorchJob", "ExitCode"), pod=ROLE),
        ends(
            "the PyTorchJob ends when a worker is deleted and its program ends itself "
            "at SIGTERM, as torchrun does; write restartPolicy OnFailure"
        ),
    ),
    "the restart policy of another role does not apply": (
        case(
            training("PyTorchJob", "Never"),
            pod={"training.kubeflow.org/replica-type": "master"},
        ),
        ALONE,
    ),
    "a JAXJob restarts no pods by default": (
        case(training("JAXJob"), pod=ROLE),
        ends("the JAXJob ends when a worker is deleted; write restartPolicy OnFailure"),
    ),
    "a PaddleJob restarts its pods by default": (
        case(training("PaddleJob"), pod=ROLE),
        ALONE,
    ),
    "a restart policy of a role that nobody knows": (
        case(training("PyTorchJob", "Sometimes"), pod=ROLE),
        unknown(
            "PyTorchJob.spec.pytorchReplicaSpecs.Worker.restartPolicy", "Sometimes"
        ),
    ),
    "a TFJob ends when a pod is deleted": (
        case(training("TFJob", "OnFailure"), pod=ROLE),
        ends("the TFJob ends when one of its pods is deleted; run it by a JobSet"),
    ),
    "an XGBoostJob ends when a pod is deleted": (
        case(training("XGBoostJob", "OnFailure"), pod=ROLE),
        ends("the XGBoostJob ends when one of its pods is deleted; run it by a JobSet"),
    ),
    "an MPIJob of the training operator ends when a pod is deleted": (
        case(training("MPIJob", "OnFailure"), pod=ROLE),
        ends("the MPIJob ends when one of its pods is deleted; run it by a JobSet"),
    ),
    "an MPIJob of its own operator makes workers again": (
        case(resource("kubeflow.org/v2beta1", "MPIJob"), pod=ROLE),
        ALONE,
    ),
    "an AscendJob makes pods again": (case(ascend(), pod={"version": "7"}), ALONE),
    "an AscendJob within its backoffLimit": (
        case(ascend(backoffLimit=2), pod={"version": "1"}),
        ALONE,
    ),
    "an AscendJob has used up its backoffLimit": (
        case(ascend(backoffLimit=2), pod={"version": "2"}),
        ends(
            "the AscendJob has used up backoffLimit or fault-retry-times 2; write a "
            "higher number"
        ),
    ),
    "an AscendJob has used up fault-retry-times": (
        case(ascend({"fault-retry-times": "1"}), pod={"version": "1"}),
        ends(
            "the AscendJob has used up backoffLimit or fault-retry-times 1; write a "
            "higher number"
        ),
    ),
    "the backoffLimit of an AscendJob goes before fault-retry-times": (
        case(ascend({"fault-retry-times": "1"}, backoffLimit=0), pod={"version": "1"}),
        ALONE,
    ),
    "fault-retry-times that are no number": (
        case(ascend({"fault-retry-times": "many"})),
        ends(
            "AscendJob.metadata.labels.fault-retry-times: "
            "expected a number, found 'many'"
        ),
    ),
    # Ray
    "a RayCluster makes a worker again": (case(ray(), pod=RAY_ONE), ALONE),
    "a RayCluster makes a replica of several hosts again as a whole": (
        case(ray(), pod=RAY_MANY),
        group("ray.io/worker-group-replica-name"),
    ),
    "a worker of a group that has gone": (
        case(ray(), pod=RAY_ONE | {"ray.io/group": "gone"}),
        ALONE,
    ),
    "a RayCluster loses its work with its head": (
        case(ray(), pod=RAY_HEAD),
        ends(
            "a RayCluster loses its work with its head; write gcsFaultToleranceOptions"
        ),
    ),
    "a RayCluster with fault tolerance makes its head again": (
        case(ray(gcsFaultToleranceOptions={"redisAddress": "r:6379"}), pod=RAY_HEAD),
        ALONE,
    ),
    "a RayCluster with fault tolerance by annotation makes its head again": (
        case(ray({"ray.io/ft-enabled": "True"}), pod=RAY_HEAD),
        ALONE,
    ),
    "a RayJob with its submitter beside the head ends with it": (
        case(
            ray(
                {"ray.io/disable-provisioned-head-restart": "true"},
                gcsFaultToleranceOptions={},
            ),
            pod=RAY_HEAD,
        ),
        ends(
            "a RayJob in SidecarMode ends with its head; write another submissionMode"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_eviction_does_to_a_job_what_its_controller_does(name: str) -> None:
    pods, end = CASES[name]

    assert pods.end == end
