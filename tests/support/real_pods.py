"""What controllers of jobs give their pods: keys of labels and annotations, and owners.

`tests/e2e/stories/test_marks.py` sees that real ones give just this. Whatever in tests
stands for such a pod is compared with it.
"""

from dataclasses import dataclass

from sandbox.apiclient import Object

_BATCH = "batch.kubernetes.io"
_JOBSET = "jobset.sigs.k8s.io"
_LWS = "leaderworkerset.sigs.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a pod has from its controllers."""

    labels: frozenset[str]
    annotations: frozenset[str]
    #: kind of its controller
    owner: str


def marks(pod: Object) -> Marks:
    """Return what a pod has that was made from a template without any."""
    meta = pod["metadata"]
    return Marks(
        labels=frozenset(meta.get("labels") or ()),
        annotations=frozenset(meta.get("annotations") or ()),
        owner=next(each["kind"] for each in meta["ownerReferences"]),
    )


_OF_JOB = frozenset(
    {
        f"{_BATCH}/controller-uid",
        f"{_BATCH}/job-completion-index",
        f"{_BATCH}/job-name",
        "controller-uid",
        "job-name",
    }
)
#: Labels, and annotations as well.
_OF_JOB_SET = frozenset(
    f"{_JOBSET}/{name}"
    for name in (
        *("global-replicas", "group-name", "group-replicas", "job-global-index"),
        *("job-group-index", "job-index", "job-key", "jobset-name", "jobset-uid"),
        *("replicatedjob-name", "replicatedjob-replicas", "restart-attempt"),
    )
)
_INDEX = f"{_BATCH}/job-completion-index"
#: Labels.
_OF_GROUP = frozenset(
    {
        f"{_LWS}/group-index",
        f"{_LWS}/group-key",
        f"{_LWS}/name",
        f"{_LWS}/template-revision-hash",
        f"{_LWS}/worker-index",
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)

JOB = Marks(labels=_OF_JOB, annotations=frozenset({_INDEX}), owner="Job")
JOB_SET = Marks(
    labels=_OF_JOB | _OF_JOB_SET | {f"{_JOBSET}/priority"},
    annotations=_OF_JOB_SET | {_INDEX},
    owner="Job",
)
LEADER = Marks(
    labels=_OF_GROUP, annotations=frozenset({f"{_LWS}/size"}), owner="StatefulSet"
)
WORKER = Marks(
    labels=_OF_GROUP,
    annotations=frozenset({f"{_LWS}/leader-name", f"{_LWS}/size"}),
    owner="StatefulSet",
)

#: {controller: labels that a pod of it has}
LABELS = {
    "pytorch": {
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": "3",
        "training.kubeflow.org/replica-type": "worker",
    },
    "mpi": {
        "training.kubeflow.org/job-name": "resnet",
        "training.kubeflow.org/job-role": "worker",
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/replica-index": "1",
    },
    "jobset": {
        "batch.kubernetes.io/controller-uid": "8a6d2126",
        "batch.kubernetes.io/job-completion-index": "2",
        "batch.kubernetes.io/job-name": "ranks-workers-1",
        "controller-uid": "8a6d2126",
        "job-name": "ranks-workers-1",
        "jobset.sigs.k8s.io/global-replicas": "3",
        "jobset.sigs.k8s.io/group-name": "default",
        "jobset.sigs.k8s.io/group-replicas": "3",
        "jobset.sigs.k8s.io/job-global-index": "1",
        "jobset.sigs.k8s.io/job-group-index": "1",
        "jobset.sigs.k8s.io/job-index": "1",
        "jobset.sigs.k8s.io/job-key": "c90f",
        "jobset.sigs.k8s.io/jobset-name": "ranks",
        "jobset.sigs.k8s.io/jobset-uid": "2f81",
        "jobset.sigs.k8s.io/priority": "0",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "3",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    },
    "lws": {
        "apps.kubernetes.io/pod-index": "2",
        "controller-revision-hash": "serve-1-5b7",
        "leaderworkerset.sigs.k8s.io/group-index": "1",
        "leaderworkerset.sigs.k8s.io/group-key": "5e2a",
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/template-revision-hash": "6fd9",
        "leaderworkerset.sigs.k8s.io/worker-index": "2",
        "statefulset.kubernetes.io/pod-name": "serve-1-2",
    },
    "volcano": {
        "volcano.sh/job-name": "lm",
        "volcano.sh/job-namespace": "ml",
        "volcano.sh/queue-name": "default",
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "worker",
    },
    "ray": {
        "app.kubernetes.io/created-by": "kuberay-operator",
        "app.kubernetes.io/name": "kuberay",
        "ray.io/cluster": "llm",
        "ray.io/group": "Big",
        "ray.io/identifier": "llm-worker",
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "worker",
        "ray.io/replica-host-index": "1",
        "ray.io/worker-group-replica-index": "2",
        "ray.io/worker-group-replica-name": "Big-x7k2p",
    },
    "kueue": {
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/pod-group-name": "sweep",
        "kueue.x-k8s.io/queue-name": "user-queue",
    },
    "job": {
        "batch.kubernetes.io/controller-uid": "8a6d2126",
        "batch.kubernetes.io/job-completion-index": "4",
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": "8a6d2126",
        "job-name": "train",
    },
}
