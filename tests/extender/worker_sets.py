"""The controllers of a LeaderWorkerSet, as their sources have them, in simulated time.

Each does a part of the work by itself, in any order: the StatefulSet of leaders makes
a leader again as soon as its pod has gone; a StatefulSet of workers is owned by the pod
of its leader, and the garbage collector takes it, and then its pods, some time later.

Source:
    kubernetes-sigs/lws v0.9.0 pkg/controllers/pod_controller.go,
    pkg/webhooks/pod_webhook.go; kubernetes v1.36 pkg/controller/statefulset,
    pkg/controller/garbagecollector.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from extender.gang.size import size_of
from sandbox.apiclient import Object
from tests.extender.gangworld import GangWorld
from tests.support.objects import container, pod
from tests.support.watched import RESOURCE

LWS = "leaderworkerset.sigs.k8s.io"
PATH = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/vllm"


def marks_of(name: str, number: int, size: int) -> Object:
    """Labels and annotations of a pod of the set `vllm`; its leader has number 0."""
    group = name.split("-")[1]
    notes = {f"{LWS}/size": f"{size}"}
    if number:
        notes[f"{LWS}/leader-name"] = f"vllm-{group}"
    labels = {
        f"{LWS}/name": "vllm",
        f"{LWS}/group-index": group,
        f"{LWS}/group-key": f"sha1-of-vllm-{group}",
        f"{LWS}/template-revision-hash": "7d9c",
        f"{LWS}/worker-index": f"{number}",
        "apps.kubernetes.io/pod-index": f"{number or group}",
        "controller-revision-hash": f"vllm-{group}-5b7",
        "statefulset.kubernetes.io/pod-name": name,
    }
    return {"labels": labels, "annotations": notes}


@dataclass(frozen=True, slots=True)
class WorkersSet:
    """A StatefulSet of the workers of one group."""

    uid: str
    #: UID of the pod that owns it
    leader: str


class WorkerSet:
    """One LeaderWorkerSet, named vllm, of whole nodes."""

    def __init__(
        self,
        world: GangWorld,
        *,
        size: int = 4,
        leader: int = 8,
        groups: int = 1,
        is_leader_first: bool = False,
    ) -> None:
        """Start without pods.

        Args:
            size: Pods of a group.
            leader: Chips of a leader.
            is_leader_first: Whether workers are made when their leader is ready.
        """
        self.world = world
        self.size = size
        self.leader = leader
        self.groups = groups
        self.is_leader_first = is_leader_first
        #: {name of the leader: StatefulSet of its workers}
        self.sets: dict[str, WorkersSet] = {}
        #: {UID of a pod of a group: UID of its leader}
        self.leader_of: dict[str, str] = {}
        #: `nodeSelector` of workers: with exclusive topology, that of their leader
        self.selector: dict[str, str] = {}
        #: UIDs of the StatefulSets that have made pods
        self.made: set[str] = set()
        self._numbers = count()
        templates = [
            {"spec": {"containers": [container(npus=npus)]}} for npus in (leader, 8)
        ]
        group = {"size": size} | dict(
            zip(("leaderTemplate", "workerTemplate"), templates, strict=True)
        )
        startup = "LeaderReady" if is_leader_first else "LeaderCreated"
        spec = {"leaderWorkerTemplate": group, "startupPolicy": startup}
        found = size_of("LeaderWorkerSet", {"spec": spec}, [RESOURCE], size)
        assert found is not None
        world.world.calls.sizes[PATH] = found

    # -- controllers -----------------------------------------------------------------

    def reconcile(self) -> None:
        """Let each controller do its work, but the garbage collector."""
        self.make_leaders()
        self.make_sets()
        self.make_workers()

    def make_leaders(self) -> None:
        """StatefulSet controller: a leader for each group whose pod has gone."""
        for number in range(self.groups):
            name = f"vllm-{number}"
            if name not in self.world.pods:
                owner = {"kind": "StatefulSet", "name": "vllm", "uid": "uid-of-vllm"}
                self._create(name, 0, self.leader, owner)

    def make_sets(self) -> None:
        """LeaderWorkerSet: a StatefulSet of workers for each leader without one."""
        for name, found in list(self.world.pods.items()):
            is_ready = "nodeName" in found["spec"] or not self.is_leader_first
            is_leader = found["metadata"]["labels"].get(f"{LWS}/worker-index") == "0"
            if is_leader and is_ready and name not in {*self.sets, *self.ending}:
                uid = f"uid-of-set-{next(self._numbers)}"
                self.sets[name] = WorkersSet(uid, found["metadata"]["uid"])

    def make_workers(self) -> None:
        """StatefulSet controller: the workers of each StatefulSet that are missing.

        One that made none before its leader was replaced makes none: pods do not tell
        whose they would be (docs/jobs.md).
        """
        uids = {found["metadata"]["uid"] for found in self.world.pods.values()}
        for leader, found in self.sets.items():
            may_make = found.uid in self.made or found.leader in uids
            for number in range(1, self.size if may_make else 0):
                name = f"{leader}-{number}"
                if name not in self.world.pods:
                    owner = {"kind": "StatefulSet", "name": leader, "uid": found.uid}
                    self._create(name, number, 8, owner)

    def collect_sets(self) -> None:
        """Garbage collector: the StatefulSets whose leader has gone."""
        uids = {found["metadata"]["uid"] for found in self.world.pods.values()}
        self.sets = {n: found for n, found in self.sets.items() if found.leader in uids}

    def collect_workers(self) -> None:
        """Garbage collector: the workers whose StatefulSet has gone."""
        uids = {found.uid for found in self.sets.values()} | {"uid-of-vllm"}
        for name, found in list(self.world.pods.items()):
            owner = found["metadata"].get("ownerReferences", [{}])[0]
            if owner.get("kind") == "StatefulSet" and owner["uid"] not in uids:
                self.delete(name)

    def _create(self, name: str, number: int, npus: int, owner: Object) -> None:
        uid = f"uid-{name}.{next(self._numbers)}"
        now = datetime.fromtimestamp(int(self.world.time.now_s), UTC)
        meta = marks_of(name, number, self.size) | {
            "uid": uid,
            "creationTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "ownerReferences": [owner | {"apiVersion": "apps/v1", "controller": True}],
        }
        meta["labels"]["role"] = "worker" if number else "leader"
        sets = {found.uid: found.leader for found in self.sets.values()}
        self.made.add(owner["uid"])
        self.leader_of[uid] = sets[owner["uid"]] if number else uid
        spec: dict[str, Any] = {"nodeSelector": self.selector} if number else {}
        containers = [container(npus=npus)]
        self.world.add(pod(name, containers=containers, meta=meta, **spec))

    # -- people and kubelets ---------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a pod; one that has a node ends when its kubelet says so."""
        found = self.world.pods[name]
        if "nodeName" not in found["spec"]:
            self.world.remove(name)
        elif name not in self.ending:
            found["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
            self.world.show(name)

    def end(self, *names: str) -> None:
        """Kubelet: the containers of these pods have ended, and the pods go."""
        for name in names or self.ending:
            self.world.remove(name)

    @property
    def ending(self) -> list[str]:
        """Pods that are being deleted."""
        pods = self.world.pods.items()
        return [name for name, p in pods if "deletionTimestamp" in p["metadata"]]

    def names(self, group: int = 0) -> list[str]:
        """The pods of a group with chips."""
        name = f"vllm-{group}"
        mine = [n for n in self.world.pods if n == name or n.startswith(f"{name}-")]
        return [n for n in mine if n != name or self.leader]
