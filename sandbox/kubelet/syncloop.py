"""What does the kubelet do when pods come, change and go?

The sync loop: one event after the other, and admission inside it. A plugin that
does not answer holds up every new pod and every deletion of the node, as in
the real one (kubelet.go:2829).
"""

import asyncio
from collections.abc import Iterable

from sandbox.apiclient import Changed, Event, Listed, Object
from sandbox.kubelet import podstatus
from sandbox.kubelet.devices import DeviceError
from sandbox.kubelet.podstatus import Reason
from sandbox.kubelet.worker import TERMINATED, Node, PodWorker
from sandbox.pods import Pod, pod_of


class SyncLoop:
    """The pods that the API server has given to this node.

    Protects: a pod is admitted at most once per kubelet process, and only one
    admission runs at any time.
    """

    def __init__(
        self, node: Node, group: asyncio.TaskGroup, *, pod_network: str
    ) -> None:
        """Start without pods.

        Args:
            node: What the pods share.
            group: Where pods live; it ends with the kubelet process.
            pod_network: First three bytes of pod addresses: "10.244.1".
        """
        self._node = node
        self._group = group
        self._pod_network = pod_network
        self._pods: dict[str, Pod] = {}
        self._rejected: set[str] = set()
        self._held: dict[str, Pod] = {}
        self._arrived = asyncio.Event()
        self._workers: dict[str, PodWorker] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._addresses = 1

    # -- what others ask ---------------------------------------------------

    def pods(self) -> list[Pod]:
        """Return the pods of this node, as far as the kubelet knows."""
        return list(self._pods.values())

    def active_pods(self) -> list[Pod]:
        """Return the pods that are neither terminal nor ended (kubelet_pods.go:208)."""
        return [pod for pod in self._pods.values() if self._is_active(pod)]

    def _is_active(self, pod: Pod) -> bool:
        worker = self._workers.get(pod.uid)
        if worker is not None and worker.has_ended:
            return False
        terminal = pod.is_terminal or pod.uid in self._rejected
        return not terminal or (worker is not None and worker.is_ending)

    # -- events ------------------------------------------------------------

    async def handle(self, event: Event) -> None:
        """Take one event of the list-watch."""
        async with self._turn:
            match event:
                case Listed(items=items):
                    await self._listed(items)
                    self._node.allocator.tables.sources_ready = True
                case Changed(item=item, gone=True):
                    self._removed(item["metadata"]["uid"])
                case Changed(item=item):
                    await self._changed([pod_of(item)])

    async def admit(self, names: Iterable[str]) -> None:
        """Admit held pods in this order, waiting for those that are not here yet.

        Args:
            names: Names of pods, or "namespace/name".
        """
        for name in names:
            pod = None
            while pod is None:
                self._arrived.clear()
                async with self._turn:
                    pod = self._find_held(name)
                    if pod is not None:
                        del self._held[pod.uid]
                        await self._add(pod)
                if pod is None:
                    await self._arrived.wait()

    async def _listed(self, items: Iterable[Object]) -> None:
        pods = [pod_of(item) for item in items]
        present = {pod.uid for pod in pods}
        # also those of which only containers are left: gone while the kubelet was away
        known = self._pods.keys() | self._held.keys() | self._node.runtime.uids()
        for uid in known - present:
            self._removed(uid)
        await self._changed(sorted(pods, key=lambda pod: pod.created))

    async def _changed(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.uid in self._pods:
                self._update(pod)
            elif self._is_held(pod):
                self._held[pod.uid] = pod
                self._arrived.set()
            else:
                self._held.pop(pod.uid, None)
                await self._add(pod)

    def _removed(self, uid: str) -> None:
        """Forget a pod; what still runs of it ends in its own time (force deletion)."""
        self._pods.pop(uid, None)
        self._held.pop(uid, None)
        self._rejected.discard(uid)
        self._workers.pop(uid, None)
        life = self._lives.pop(uid, None)
        if life is not None:
            life.cancel()
        self._group.create_task(self._clear(uid, life))

    async def _clear(self, uid: str, life: asyncio.Task[None] | None) -> None:
        """End what runs of a pod that is gone or rejected (kubelet_pods.go:1405).

        Meanwhile nobody counts it: neither pod-resources nor the kubelet itself.
        """
        if life is not None:
            await asyncio.wait({life})  # it may be making a container
        runtime = self._node.runtime
        running = [run for run in runtime.runs_of(uid) if run.is_running]
        if running:
            grace_s = running[0].pod.grace_s
            await asyncio.sleep(min(self._node.switches.stop_s, grace_s))
        for run in running:
            runtime.end(run, TERMINATED)
        runtime.remove(uid)

    def _update(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        worker = self._workers.get(pod.uid)
        if worker is not None:
            worker.update(pod)
        if pod.deleting and (worker is None or worker.has_ended):
            self._node.outbox.remove(pod)

    # -- admission ---------------------------------------------------------

    async def _add(self, pod: Pod) -> None:
        """Admit a pod and let it live, or reject it for good."""
        self._pods[pod.uid] = pod
        if pod.is_terminal:
            self._update(pod)
            return
        refusal = None if pod.deleting else await self._refusal(pod)
        if refusal is not None:
            self._reject(pod, refusal)
        else:
            self._begin(pod)

    async def _refusal(self, pod: Pod) -> Reason | None:
        for container in pod.containers:
            try:
                await self._node.allocator.allocate(pod, container)
            except DeviceError as error:
                return Reason(
                    reason="UnexpectedAdmissionError",
                    message=f"Allocate failed due to {error}, which is unexpected",
                )
        return self._insufficient(pod) or self._checked_late(pod)

    def _insufficient(self, pod: Pod) -> Reason | None:
        """Compare the pod's requests with what the node has (lifecycle/predicate.go).

        A resource that the node does not have at all is no reason: such a pod
        runs without any device.
        """
        _, allocatable = self._node.allocator.capacity()
        allocated = self._node.allocator.tables.allocated
        others = [other for other in self.active_pods() if other.uid != pod.uid]
        for resource, count in pod.requests.items():
            if resource not in allocatable:
                continue
            total = max(allocatable[resource], len(allocated.get(resource, ())))
            used = sum(other.requests.get(resource, 0) for other in others)
            if used + count > total:
                return Reason(
                    reason=f"OutOf{resource}",
                    message=f"Node didn't have enough resource: {resource}, "
                    f"requested: {count}, used: {used}, capacity: {total}",
                )
        return None

    def _checked_late(self, pod: Pod) -> Reason | None:
        if pod.name not in self._node.switches.reject_after_allocate:
            return None
        return Reason(
            reason="AppArmor",
            message="Cannot enforce AppArmor: AppArmor is not enabled on the host",
        )

    def _reject(self, pod: Pod, refusal: Reason) -> None:
        self._rejected.add(pod.uid)
        self._node.outbox.event(pod, "Warning", refusal.reason, refusal.message)
        self._node.outbox.status(pod, podstatus.rejected(refusal))
        # after a restart of the kubelet it may have been running
        self._group.create_task(self._clear(pod.uid, None))

    def _begin(self, pod: Pod) -> None:
        self._addresses += 1
        worker = PodWorker(pod, self._node, f"{self._pod_network}.{self._addresses}")
        self._workers[pod.uid] = worker
        self._lives[pod.uid] = self._group.create_task(self._live(worker))

    async def _live(self, worker: PodWorker) -> None:
        await worker.run()
        if worker.pod.deleting:
            self._node.outbox.remove(worker.pod)

    def _is_held(self, pod: Pod) -> bool:
        if not self._node.switches.hold_admission or pod.is_terminal or pod.deleting:
            return False
        # Pods that run already come again after a restart: they are not new.
        return not self._node.runtime.runs_of(pod.uid)

    def _find_held(self, name: str) -> Pod | None:
        held = self._held.values()
        named = (p for p in held if name in {p.name, f"{p.namespace}/{p.name}"})
        return next(named, None)
