"""A model of the kubelet's device manager: ids, admission, pod-resources.

It does what version 1.36 does, each odd thing on demand: any order, preference
followed or not, ids of init containers used again without a preference, ids of
ended pods freed late, a pod rejected after its Allocate, an id forgotten and
given twice, a lost checkpoint, an Allocate by a pod worker.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from agent.claims.events import InUse
from scheduler_core.node import chips as chip_sets
from scheduler_core.wire.pods import NpuPod
from scheduler_core.wire.shapes import ContainerKind
from tests.agent.claims.admission_model import (
    Admission,
    Container,
    Manner,
    Plugin,
    PluginError,
)
from tests.agent.claims.cluster_model import (
    Cluster,
    annotated,
    shuffled,
)

Key = tuple[str, str]  # pod uid, container name


@dataclass
class Kubelet:
    """The kubelet of the node, and what runs on it."""

    cluster: Cluster
    plugin: Plugin
    seen: Counter[str]
    healthy: frozenset[str] = frozenset()
    known: dict[str, NpuPod] = field(default_factory=dict)  # the pod manager's
    devices: dict[Key, frozenset[str]] = field(default_factory=dict)
    in_flight: frozenset[str] = frozenset()  # ids between preference and Allocate
    containers: dict[Key, Container] = field(default_factory=dict)
    admission: Admission | None = None
    admitted: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)  # rejected or run to the end
    running: dict[str, NpuPod] = field(default_factory=dict)  # as admitted
    given: dict[str, int] = field(default_factory=dict)  # {uid: what it mounted last}
    lives: int = 0  # how often it has restarted
    leftovers: int = 0  # mask: chips with a process that outlived its container

    # pods come and go

    def sync(self) -> None:
        """Take in the API server's present list of pods."""
        self.known = dict(self.cluster.pods)

    def waiting(self) -> list[NpuPod]:
        """Bound pods that were not admitted yet."""
        busy = self.admission.pod.uid if self.admission else ""
        return [
            pod
            for pod in self.cluster.living()
            if pod.uid not in self.admitted | self.ended
            and pod.uid != busy
            and not pod.deleting
        ]

    def active(self) -> set[str]:
        """Pods whose ids are not free."""
        pending = {self.admission.pod.uid} if self.admission else set()
        return (self.known.keys() - self.ended) | pending

    def free_ended(self) -> None:
        """Forget the ids of pods that have ended: late, and all at once."""
        active = self.active()
        self.devices = {
            key: ids for key, ids in self.devices.items() if key[0] in active
        }

    # admission

    def begin(self, pod: NpuPod, manner: Manner) -> None:
        self.sync()
        self.admission = Admission(self.cluster.pods[pod.uid], manner)

    def advance(self) -> None:
        """One call to the plugin, at most."""
        admission = self.admission
        assert admission is not None
        try:
            if admission.asked:
                self._allocate(admission)
            else:
                admission.asked = self._ids_for(admission)
                self.in_flight = frozenset(admission.asked)
        except PluginError:
            self._reject(admission.pod.uid)
            return
        if admission.position == len(admission.pod.needs):
            self._end_admission(admission)

    def _end_admission(self, admission: Admission) -> None:
        uid = admission.pod.uid
        self.seen["rejected after Allocate"] += admission.manner.rejects
        if admission.manner.rejects or uid not in self.cluster.pods:
            self._reject(uid)
            return
        self.admission = None
        self.admitted.add(uid)

    def _reject(self, uid: str) -> None:
        self.admission = None
        self.in_flight = frozenset()
        self.reap(uid)
        pod = self.cluster.pods.get(uid)
        if pod is not None:
            self.cluster.put(replace(pod, phase="Failed"))

    def _ids_for(self, admission: Admission) -> tuple[str, ...]:
        """The device manager's devicesToAllocate."""
        self.free_ended()
        key = (admission.pod.uid, admission.need.name)
        known = self.devices.get(key)
        if known is not None:  # allocated before a restart of the kubelet
            return tuple(known)
        return self._choose(admission.need.count, admission.reusable, admission.manner)

    def _choose(
        self, count: int, reusable: frozenset[str], manner: Manner
    ) -> tuple[str, ...]:
        taken = tuple(shuffled(reusable, manner.seed)[:count])
        if len(taken) == count:
            return taken
        forgotten = self._ids_of(manner.forgets)
        others = {uid for uid, _ in self.devices} - {manner.forgets}
        in_use = set[str]().union(*map(self._ids_of, others))
        free = self.healthy - in_use - self.in_flight
        available = (
            *shuffled(free & forgotten, manner.seed),
            *shuffled(free - forgotten, manner.seed),
        )
        if len(available) + len(taken) < count:
            raise PluginError("too few devices")
        preferred = self.plugin.prefer(available + taken, taken, count)
        assert set(preferred) <= {*available, *taken}
        assert len(preferred) <= count
        order = [i for i in preferred if i in available] if manner.obeys else []
        order += [i for i in available if i not in order]
        return (taken + tuple(order))[:count]

    def _allocate(self, admission: Admission) -> None:
        uid, need, ids = admission.pod.uid, admission.need, admission.asked
        if (uid, need.name) not in self.devices:
            self.devices[uid, need.name] = frozenset(ids)
            try:
                mounted = self.plugin.allocate(ids)
            except PluginError:
                del self.devices[uid, need.name]
                raise
            self.containers[uid, need.name] = Container(need.kind, mounted)
            self._apply_own_environment(uid, need.name)
        self._note_shared_ids(uid)
        if need.kind is ContainerKind.INIT:
            admission.reusable |= frozenset(ids)
        else:
            admission.reusable -= frozenset(ids)
        admission.asked = ()
        admission.position += 1
        self.in_flight = frozenset()

    def _ids_of(self, uid: str) -> set[str]:
        return {i for (u, _), ids in self.devices.items() if u == uid for i in ids}

    def _note_shared_ids(self, uid: str) -> None:
        mine = self._ids_of(uid)
        if any(
            not mine.isdisjoint(ids) for (u, _), ids in self.devices.items() if u != uid
        ):
            self.seen["an id given twice"] += 1

    # containers run

    def start(self, uid: str) -> None:
        """Run an admitted pod: init containers to their end, then the others."""
        pod = self.cluster.pods[uid]
        self.running[uid] = pod
        for need in pod.needs:
            self._apply_own_environment(uid, need.name)

    def _apply_own_environment(self, uid: str, container: str) -> None:
        """What the pod's own environment says wins over Allocate's answer."""
        pod = self.cluster.pods.get(uid)
        if pod is None:
            return  # nothing of it will be started
        made = self.containers[uid, container]
        if pod.shape.reads_annotation and made.mounted:
            own = chip_sets.ids_of(annotated(pod))
            ids = [kubelet_id for kubelet_id, _ in made.mounted]
            made.mounted = tuple(zip(ids, own, strict=False))
        self.given[uid] = self.given.get(uid, 0) | made.mask

    def start_bare(self, uid: str) -> None:
        """Run a pod as if nobody offered its resource: without any device."""
        self.sync()
        pod = self.cluster.pods[uid]
        self.admitted.add(uid)
        self.running[uid] = pod
        for need in pod.needs:
            self.containers[uid, need.name] = Container(need.kind, ())
        self.seen["bare"] += 1

    def acknowledge(self, uid: str) -> None:
        """Say that a pod was admitted: before anything of it runs."""
        pod = self.cluster.pods.get(uid)
        if pod is not None and not pod.admitted:
            self.cluster.put(replace(pod, admitted=True))

    def report(self, uid: str) -> None:
        pod = self.cluster.pods.get(uid)
        if pod is not None and pod.phase == "Pending":
            self.cluster.put(replace(pod, phase="Running", admitted=True))

    def finish(self, uid: str, phase: str, *, leftover: bool) -> None:
        """All containers end; perhaps a process of theirs does not."""
        self.reap(uid, leftover=leftover)
        pod = self.cluster.pods.get(uid)
        if pod is not None:
            self.cluster.put(replace(pod, phase=phase))

    def terminate(self, uid: str, *, leftover: bool) -> None:
        """End a pod that was deleted gracefully, then let the API server forget it."""
        self.reap(uid, leftover=leftover)
        self.cluster.remove(uid)
        self.sync()

    def reap(self, uid: str, *, leftover: bool = False) -> None:
        """End the containers of a pod; perhaps a process of theirs does not."""
        if leftover:
            self.leftovers |= self.mounted_by(uid)
        self.running.pop(uid, None)
        self.containers = {k: c for k, c in self.containers.items() if k[0] != uid}
        self.ended.add(uid)

    def orphans(self) -> list[str]:
        """Force-deleted pods whose containers still run."""
        return [uid for uid in self.running if uid not in self.cluster.pods]

    def restart_container(self, key: Key, manner: Manner) -> None:
        """A container ends and is made anew; if its ids were lost, by an Allocate."""
        container = self.containers[key]
        if self.devices.get(key):
            return  # the checkpoint has the answer
        need = next(n for n in self.running[key[0]].needs if n.name == key[1])
        self.given[key[0]] = self.given.get(key[0], 0) & ~container.mask
        container.mounted, container.alive = (), False
        self.seen["Allocate by a pod worker"] += 1
        self.free_ended()
        try:
            ids = self._choose(need.count, frozenset(), manner)
            self.devices[key] = frozenset(ids)
            container.mounted = self.plugin.allocate(ids)
        except PluginError:
            self.devices.pop(key, None)
            return
        self._apply_own_environment(*key)
        self._note_shared_ids(key[0])
        container.alive = True

    def restart(self, *, lose: bool, rejects: bool) -> None:
        """The kubelet restarts; running containers go on."""
        self.admission, self.in_flight = None, frozenset()
        self.lives += 1
        self.sync()
        stay = self.running.keys() | (set() if lose else self.known.keys())
        self.containers = {k: c for k, c in self.containers.items() if k[0] in stay}
        if lose:
            self.devices = {}
            # init containers have ended; only the checkpoint had their chips
            self.containers = {
                key: container
                for key, container in self.containers.items()
                if container.kind is not ContainerKind.INIT
            }
            self.admitted &= self.running.keys()
            self.seen["checkpoint lost"] += bool(self.running)
        if rejects:
            for uid, pod in tuple(self.running.items()):
                if pod.needs[0].kind is ContainerKind.INIT and uid in self.known:
                    self.seen["rejected at a restart"] += 1
                    self.finish(uid, "Failed", leftover=False)

    def lacks_devices(self, uid: str) -> bool:
        """Whether a running container has none that pod-resources can show."""
        return uid not in self.running or any(
            not self.devices.get((uid, need.name))
            for need in self.running[uid].needs
            if need.kind is not ContainerKind.INIT
        )

    # what others see

    def resources(self, name: str) -> dict[str, frozenset[str]] | None:
        """pod-resources Get: by name, without ordinary init containers."""
        pod = next((pod for pod in self.known.values() if pod.name == name), None)
        if pod is None:
            return None
        return {
            need.name: self.devices.get((pod.uid, need.name), frozenset())
            for need in pod.needs
            if need.kind is not ContainerKind.INIT
        }

    def list(self) -> InUse:
        """pod-resources List: what each container has, after forgetting the ended."""
        self.free_ended()
        return {
            (pod.namespace, pod.name, container): ids
            for pod in self.known.values()
            for container, ids in (self.resources(pod.name) or {}).items()
        }

    def mounted_by(self, uid: str) -> int:
        made = self.containers.items()
        return chip_sets.union(
            container.mask for (owner, _), container in made if owner == uid
        )

    def mounted(self) -> int:
        """All chips in containers that live, or may come (again)."""
        return chip_sets.union(container.mask for container in self.lasting().values())

    def lasting(self) -> dict[Key, Container]:
        """The containers that live, or may come (again).

        Of a pod that has gone nothing comes: no container of one on its way through
        admission, no init container of one that runs. What those got is shown
        nowhere.
        """
        admitting = self.admission.pod.uid if self.admission else ""
        return {
            (uid, name): container
            for (uid, name), container in self.containers.items()
            if uid in self.cluster.pods
            or (uid != admitting and container.kind is not ContainerKind.INIT)
        }

    def busy(self) -> int:
        """The chips with a process on them, as the driver sees it."""
        mask = self.leftovers
        for (uid, _), container in self.containers.items():
            if uid in self.running and container.kind is not ContainerKind.INIT:
                mask |= container.mask
        return mask
