"""Controllers of several kinds of jobs, as their sources are, in simulated time.

They look at the pods that the API server has, also at those that are being deleted, and
do a part of their work at a time: a call may fail after any other.

Source:
    ray-project/kuberay v1.7 `reconcilePods`, `reconcileMultiHostWorkerGroup`;
    kubernetes-sigs/kueue v0.18 pkg/controller/jobs/pod, pkg/controller/jobs/job;
    kubernetes v1.36 pkg/controller/job `manageJob`, `getNewFinishedPods`;
    kubeflow/training-operator v1.9.3 pkg/controller.v1/common `ReconcilePods`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from extender.gang.size import size_of
from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld
from tests.support.objects import container, pod
from tests.support.watched import RESOURCE

_ENDED = ("Failed", "Succeeded")
_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICA = "ray.io/worker-group-replica-name"
#: Paths of the Job, the RayCluster and the PyTorchJob.
JOB_PATH = "/apis/batch/v1/namespaces/default/jobs/train"
RAY_PATH = "/apis/ray.io/v1/namespaces/default/rayclusters/llm"
TRAINING_PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/train"


class ApiError(Exception):
    """The API server refuses a call, a quota is used up, or the cache is stale."""


class PodsApi:
    """The API server as a controller of pods uses it, and the kubelets behind it."""

    def __init__(self, world: GangWorld) -> None:
        self.world = world
        #: calls that succeed until one fails; None: all of them
        self.calls_left: int | None = None
        self._numbers = count()

    @property
    def pods(self) -> dict[str, Object]:
        """{name: pod}, the oldest first."""
        return self.world.pods

    def _call(self) -> None:
        if self.calls_left is not None:
            if not self.calls_left:
                raise ApiError
            self.calls_left -= 1

    def create(self, prefix: str, npus: int, meta: Object, **spec: Any) -> None:
        self._call()
        name = f"{prefix}-{next(self._numbers)}"
        made = pod(
            meta.get("name", name),
            containers=[container(npus=npus)],
            meta={
                "uid": f"uid-{name}",
                **meta,
                "labels": {"role": prefix, **meta["labels"]},
                "annotations": dict(meta.get("annotations", {})),
            },
            **spec,
        )
        self.world.add(made)

    def delete(self, name: str) -> None:
        """Delete a pod; one that has a node or a finalizer only begins to end."""
        self._call()
        if name not in self.pods:
            return  # as after the answer 404
        meta = self.pods[name]["metadata"]
        meta["deletionTimestamp"] = "2026-11-23T00:00:00Z"
        self.collect(name)

    def patch(self, name: str, **changes: Any) -> None:
        """Change parts of a pod: finalizers and gates are lists, or None."""
        self._call()
        if name not in self.pods:
            return
        found = self.pods[name]
        for key, value in changes.items():
            part = found["metadata"] if key == "finalizers" else found["spec"]
            part[key] = value or []
        self.collect(name)

    def collect(self, name: str) -> None:
        """Show a pod, or let it go if nothing keeps it."""
        is_kept = self.pods[name]["metadata"].get("finalizers")
        if self.is_ending(name) and not self.is_running(name) and not is_kept:
            self.world.remove(name)
        else:
            self.world.show(name)

    def end(self, name: str, phase: str) -> None:
        """Let the kubelet say that the containers of a pod have ended.

        It tells how they ended before a pod goes that is being deleted.
        """
        if self.is_running(name):
            self.pods[name]["status"] = {"phase": phase}
            self.world.show(name)
            self.collect(name)

    def is_ending(self, name: str) -> bool:
        return "deletionTimestamp" in self.pods[name]["metadata"]

    def is_running(self, name: str) -> bool:
        return "nodeName" in self.pods[name]["spec"] and not self.has_ended(name)

    def has_ended(self, name: str) -> bool:
        return self.phase(name) in _ENDED

    def phase(self, name: str) -> str:
        phase: str = self.pods[name].get("status", {}).get("phase", "Pending")
        return phase


class KubeRay:
    """The controller of one RayCluster without GCS fault tolerance."""

    def __init__(
        self, api: PodsApi, groups: Sequence[Object], *, head: int, is_scaled: bool
    ) -> None:
        """Start without pods.

        Args:
            groups: {replicas, minReplicas, numOfHosts} of each worker group.
            head: Chips of the head.
            is_scaled: Whether the autoscaler decides which pods are deleted.
        """
        self.api = api
        self.spec: Object = {
            "enableInTreeAutoscaling": is_scaled,
            "headGroupSpec": {"template": _template(head)},
            "workerGroupSpecs": [
                {"groupName": f"g{number}", "template": _template(8), **group}
                for number, group in enumerate(groups)
            ],
        }
        self._replicas = count()
        self.edit()

    def edit(self, group: int = 0, **changes: object) -> None:
        """Change a worker group."""
        self.spec["workerGroupSpecs"][group] |= changes
        self._serve()

    def suspend(self, *, is_suspended: bool) -> None:
        self.spec["suspend"] = is_suspended
        self._serve()

    def _serve(self) -> None:
        size = size_of("RayCluster", {"spec": self.spec}, [RESOURCE])
        assert size is not None
        self.api.world.world.calls.sizes[RAY_PATH] = size

    def names(self, group: str) -> list[str]:
        """The pods of a group, also those that are being deleted."""
        return [
            name
            for name, found in self.api.pods.items()
            if found["metadata"]["labels"].get("ray.io/group") == group
        ]

    def reconcile(self) -> None:
        """Do what is to be done, until it is done, or something fails."""
        if self.spec.get("suspend"):
            self._delete(list(self.api.pods))
            return
        heads = self.names("headgroup")
        if not heads:
            self._create("head", self.spec["headGroupSpec"], "headgroup", {})
        elif self._delete_ended(heads):
            return
        for group in self.spec["workerGroupSpecs"]:
            names = self.names(group["groupName"])
            if group.get("suspend"):
                self._delete(names)
            elif group["numOfHosts"] > 1:
                self._reconcile_replicas(group)
            elif self._delete_ended(names):
                return
            else:
                self._reconcile_pods(group, names)

    def _reconcile_pods(self, group: Object, names: list[str]) -> None:
        for name in group.pop("workersToDelete", ()):
            if name in names:
                self.api.delete(name)
                names.remove(name)
        diff = max(group["replicas"], group["minReplicas"]) - len(names)
        for _ in range(diff):
            labels = {"ray.io/worker-group-replica-index": f"{self._index(names)}"}
            self._create("worker", group, group["groupName"], labels)
            names = [*names, [*self.api.pods][-1]]
        if not self.spec["enableInTreeAutoscaling"]:
            self._delete(names[: max(-diff, 0)])

    def replicas(self, group: str) -> dict[str, list[str]]:
        """{name of a replica of several pods: these, also those that end}."""
        found: dict[str, list[str]] = {}
        for name in self.names(group):
            labels = self.api.pods[name]["metadata"]["labels"]
            if _REPLICA in labels:
                found.setdefault(labels[_REPLICA], []).append(name)
        return found

    def _reconcile_replicas(self, group: Object) -> None:
        """Make and delete replicas of several pods as a whole.

        One of which a pod has ended is deleted, and at once the next one gets its
        index.
        """
        replicas = self.replicas(group["groupName"])
        for pods in replicas.values():
            if len(pods) < group["numOfHosts"]:
                self._delete(pods)
                return
        for replica, pods in list(replicas.items()):
            if any(map(self.api.has_ended, pods)):
                self._delete(replicas.pop(replica))
        unwanted = {*group.get("workersToDelete", ())}  # until the autoscaler edits it
        if found := [pods for pods in replicas.values() if unwanted & {*pods}]:
            self._delete([name for pods in found for name in pods])
        else:
            self._scale_replicas(group, list(replicas.values()))

    def _scale_replicas(self, group: Object, replicas: list[list[str]]) -> None:
        diff = max(group["replicas"], group["minReplicas"]) - len(replicas)
        used = [name for pods in replicas for name in pods]
        for _ in range(diff):
            used += self._create_replica(group, self._index(used))
        if not self.spec["enableInTreeAutoscaling"]:
            for pods in replicas[: max(-diff, 0)]:
                self._delete(pods)

    def _create_replica(self, group: Object, index: int) -> list[str]:
        replica = f"r{next(self._replicas)}"
        for host in range(group["numOfHosts"]):
            labels = {
                _REPLICA: replica,
                "ray.io/worker-group-replica-index": f"{index}",
                "ray.io/replica-host-index": f"{host}",
            }
            self._create("worker", group, group["groupName"], labels)
        return self.replicas(group["groupName"])[replica]

    def _index(self, names: Sequence[str]) -> int:
        """The first number that none of these pods has."""
        key = "ray.io/worker-group-replica-index"
        used = {self.api.pods[name]["metadata"]["labels"][key] for name in names}
        return next(number for number in count() if f"{number}" not in used)

    def _create(
        self, kind: str, group: Object, name: str, labels: dict[str, str]
    ) -> None:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        marks = {
            "ray.io/cluster": "llm",
            "ray.io/group": name,
            "ray.io/is-ray-node": "yes",
            "ray.io/node-type": kind,
        }
        owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "llm"}
        meta = {
            "labels": marks | labels,
            "ownerReferences": [owner | {"controller": True}],
        }
        self.api.create(kind, int(limits.get(RESOURCE, "0")), meta)

    def _delete_ended(self, names: Sequence[str]) -> bool:
        ended = [name for name in names if self.api.has_ended(name)]
        self._delete(ended)
        return bool(ended)

    def _delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.api.delete(name)


def _template(npus: int) -> Object:
    return {"spec": {"containers": [container(npus=npus)]}}


class Kueue:
    """The controller of one pod group, and the user who makes its pods."""

    GATE = "kueue.x-k8s.io/admission"
    FINALIZER = "kueue.x-k8s.io/managed"

    def __init__(self, api: PodsApi, total: int, *, is_fast: bool) -> None:
        self.api = api
        self.total = total
        self.is_fast = is_fast
        self.has_workload = False
        self.is_admitted = False

    def create(self, npus: int = 8) -> None:
        """Make a pod, as Kueue's webhook lets it pass."""
        notes = {"kueue.x-k8s.io/pod-group-total-count": f"{self.total}"}
        if self.is_fast:
            notes["kueue.x-k8s.io/pod-group-fast-admission"] = "true"
        labels = {
            "kueue.x-k8s.io/managed": "true",
            "kueue.x-k8s.io/pod-group-name": "sweep",
            "kueue.x-k8s.io/queue-name": "q",
        }
        meta = {
            "labels": labels,
            "annotations": notes,
            "finalizers": [self.FINALIZER],
        }
        self.api.create("member", npus, meta, schedulingGates=[{"name": self.GATE}])

    @property
    def active(self) -> list[str]:
        """Pods that can run or have succeeded; those with a gate last."""
        names = [name for name in self.api.pods if self._is_active(name)]
        return sorted(names, key=self.is_gated)

    def _is_active(self, name: str) -> bool:
        has_node = "nodeName" in self.api.pods[name]["spec"]
        is_lost = self.api.is_ending(name) and not has_node
        return not is_lost and self.api.phase(name) != "Failed"

    def is_gated(self, name: str) -> bool:
        return bool(self.api.pods[name]["spec"].get("schedulingGates"))

    def reconcile(self) -> None:
        """Admit nothing; delete what is too much, and remove gates and finalizers."""
        if not self.api.pods:
            self.has_workload = self.is_admitted = False
            return
        if len(self.active) >= (1 if self.is_fast else self.total):
            self.has_workload = True
        if self.has_workload:
            self._remove_excess()
        if self._is_finished:
            for name in list(self.api.pods):
                self.api.patch(name, finalizers=None)
        elif self.is_admitted:
            for name in filter(self.is_gated, self.active):
                self.api.patch(name, schedulingGates=None)

    def _remove_excess(self) -> None:
        """Delete pods beyond the number, and let go those that were replaced."""
        for name in self.active[self.total :]:
            self.api.patch(name, finalizers=None)
            self.api.delete(name)
        inactive = [name for name in self.api.pods if not self._is_active(name)]
        for name in inactive[: max(len(self.active) + len(inactive) - self.total, 0)]:
            self.api.patch(name, finalizers=None)

    @property
    def _is_finished(self) -> bool:
        phases = list(map(self.api.phase, self.api.pods))
        return phases.count("Succeeded") >= self.total

    def preempt(self) -> None:
        """Take the admission back: delete what runs or may run."""
        self.is_admitted = False
        for name in list(self.api.pods):
            is_suspended = self.is_gated(name) or self.api.has_ended(name)
            if not is_suspended and not self.api.is_ending(name):
                self.api.delete(name)


class TrainingJob:
    """The training operator with one PyTorchJob: a master, and its workers.

    A pod is made again under its name once it is no longer there.
    """

    def __init__(self, api: PodsApi, workers: int) -> None:
        """Start without pods."""
        self.api = api
        self.replicas = {"master": 1, "worker": workers}
        specs = {
            role.title(): {"replicas": replicas, "template": _template(8)}
            for role, replicas in self.replicas.items()
        }
        spec = {"spec": {"pytorchReplicaSpecs": specs}}
        size = size_of("Training job", spec, [RESOURCE])
        assert size is not None
        api.world.world.calls.sizes[TRAINING_PATH] = size

    def reconcile(self) -> None:
        for role, replicas in self.replicas.items():
            for index in range(replicas):
                name = f"train-{role}-{index}"
                if name not in self.api.pods:
                    self._create(name, role, index)
                elif self.api.phase(name) == "Failed":
                    self.api.delete(name)

    def _create(self, name: str, role: str, index: int) -> None:
        prefix = "training.kubeflow.org"
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train"}
        meta = {
            "name": name,
            "labels": {
                f"{prefix}/job-name": "train",
                f"{prefix}/replica-type": role,
                f"{prefix}/replica-index": f"{index}",
            },
            "ownerReferences": [owner | {"uid": "uid-of-train", "controller": True}],
        }
        self.api.create(f"train-{role}", 8, meta)


class IndexedJob:
    """The controller of one Indexed Job without a failure policy.

    It makes the next pod of an index as soon as the one before is being deleted, which
    it counts as failed then, however its containers end.
    """

    FINALIZER = "batch.kubernetes.io/job-tracking"

    def __init__(self, api: PodsApi, pods: int, *, least: int = 0) -> None:
        """Start without pods.

        Args:
            least: Pods that Kueue must admit; 0 for all.
        """
        self.api = api
        self.pods = self.parallelism = pods
        self.least = least
        self.is_suspended = False
        #: indexes whose pod has succeeded
        self.done: set[int] = set()
        self._making = 0
        self._serve()

    def scale(self, pods: int) -> None:
        self.pods = self.parallelism = pods
        self.done &= set(range(pods))
        self._serve()

    def admit(self, pods: int, *, is_equal: bool) -> None:
        """Kueue admits a part of a Job that waits for it.

        Args:
            is_equal: Whether `completions` are to stay equal to `parallelism`.
        """
        self.parallelism = pods
        self.pods = pods if is_equal else self.pods
        self._serve()

    def make_anew(self) -> None:
        """A person deletes the Job and makes it again under its name."""
        for name in self.names:
            self.api.delete(name)
            self.api.patch(name, finalizers=None)
        self._making += 1
        self.done.clear()
        self._serve()

    def _serve(self) -> None:
        least = {"kueue.x-k8s.io/job-min-parallelism": str(self.least)}
        found = {
            "metadata": {"annotations": least if self.least else {}},
            "spec": {
                "completionMode": "Indexed",
                "completions": self.pods,
                "parallelism": self.parallelism,
                "template": _template(8),
            },
            "status": {"succeeded": len(self.done)},
        }
        size = size_of("Job", found, [RESOURCE])
        assert size is not None
        self.api.world.world.calls.sizes[JOB_PATH] = size

    def index(self, name: str) -> int:
        return int(self.api.pods[name]["metadata"]["labels"][_INDEX])

    @property
    def uid(self) -> str:
        return f"uid-of-train-{self._making}"

    @property
    def names(self) -> list[str]:
        """Its pods, also those that are being deleted or have ended."""
        return [
            name
            for name, found in self.api.pods.items()
            for owner in found["metadata"].get("ownerReferences", ())
            if owner["uid"] == self.uid
        ]

    @property
    def active(self) -> dict[int, str]:
        """{index: pod that stays}."""
        return {
            self.index(name): name
            for name in self.names
            if not self.api.is_ending(name) and not self.api.has_ended(name)
        }

    def reconcile(self) -> None:
        """Make a pod for each index that has none, and delete what is too much."""
        self._count_ended()
        wanted = set() if self.is_suspended else set(range(self.pods)) - self.done
        for index, name in self.active.items():
            if index not in wanted:
                self.api.delete(name)
        free = min(self.parallelism, len(wanted)) - len(wanted & self.active.keys())
        for index in sorted(wanted - self.active.keys())[: max(free, 0)]:
            self._create(index)

    @property
    def uncounted(self) -> set[int]:
        """Indexes whose pod has succeeded, which is not in the status yet."""
        names = [n for n in self.names if self.api.phase(n) == "Succeeded"]
        return {self.index(name) for name in names if self._holds(name)}

    def _count_ended(self) -> None:
        """Count how pods have ended, in the status first, and let them go."""
        self.done |= self.uncounted & set(range(self.pods))
        self._serve()
        for name in self.names:
            is_over = self.api.has_ended(name) or self.api.is_ending(name)
            if is_over and self._holds(name):
                self.api.patch(name, finalizers=None)

    def _holds(self, name: str) -> bool:
        return bool(self.api.pods[name]["metadata"].get("finalizers"))

    def _create(self, index: int) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
        labels = {_INDEX: str(index), "batch.kubernetes.io/job-name": "train"}
        now = datetime.fromtimestamp(int(self.api.world.time.now_s), UTC)
        meta = {
            "labels": labels,
            "ownerReferences": [owner | {"uid": self.uid, "controller": True}],
            "creationTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "finalizers": [self.FINALIZER],
        }
        self.api.create(f"train-{index}", 8, meta)
