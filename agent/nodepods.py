"""Which pods are on this node: by the API server, else by the kubelet itself."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from agent.api import Api
from agent.claims.events import PodGone, PodSeen
from agent.current import Current
from agent.readiness import Readiness
from kube.errors import KubeError
from kube.objects import Pod
from kube.watch import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: How long the API server may take to list this node's pods before we ask the
#: kubelet itself. Unit: seconds.
FIRST_LIST_S = 5.0


class NodePods:
    """Protects which pods wait for us, and whether the API server has listed them."""

    def __init__(
        self,
        api: Api,
        current: Current,
        *,
        resource: str,
        ready: Readiness,
        is_served: Callable[[], bool],
    ) -> None:
        """Know nothing yet.

        Args:
            api: The API server.
            current: The ledger, which is told of each pod.
            resource: Whose pods.
            ready: Told when the pods are known.
            is_served: Whether the kubelet has us for its plugin, and nobody else.
        """
        self._api = api
        self._current = current
        self._node = current.ledger.node
        self._resource = resource
        self._ready = ready
        self._is_served = is_served
        #: uids of pods that came while the kubelet had no plugin but us
        self._awaited: set[str] = set()
        self._begun_s = clock.loop_s()
        self._synced = asyncio.Event()
        self.watch: ListWatch[Pod] = api.pods_of(self._node)

    @property
    def is_listed(self) -> bool:
        """Whether the API server has listed them once."""
        return self._synced.is_set()

    async def run(self) -> None:
        """Follow them until cancelled."""
        await self.watch.run(self._changed)

    async def learn(self) -> None:
        """Know them once: from the API server, else from the kubelet."""
        while True:
            try:
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._synced.wait()
            except TimeoutError:
                for pod in await self.of_kubelet():
                    self._current.apply(PodSeen(pod, by_kubelet=True))
                if not self._current.ledger.pods:
                    continue
            self._ready.has("pods")
            return

    def awaits_us(self, uid: str) -> bool:
        """Tell whether a pod came while the kubelet had no plugin but us."""
        return uid in self._awaited

    def hurry(self) -> None:
        """Have the API server asked again at once, if it is not being followed."""
        self.watch.hurry()

    def unseen_s(self) -> float:
        """For how long the API server has not been followed; seconds, 0 if it is."""
        if not self.is_listed:
            return clock.loop_s() - self._begun_s
        return self.watch.lost_s()

    async def of_kubelet(self) -> Iterable[NpuPod]:
        """Return the pods that the kubelet itself knows, as far as it may be asked."""
        try:
            return await self._api.kubelet_pods(self._node, self._resource)
        except KubeError as error:
            log.warning("kubelet's own pods not read", extra={"reason": str(error)})
            return ()

    def _changed(self, change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                pod = self._api.npu_pod(obj, self._resource)
                if pod is not None:
                    self._await(pod)
                    self._current.apply(PodSeen(pod))
            case Deleted(obj):
                self._awaited.discard(obj.metadata.uid)
                self._current.apply(PodGone(obj.metadata.uid))
            case Synced():
                self._synced.set()
                self._ready.has("pods")

    def _await(self, pod: NpuPod) -> None:
        """Remember a pod that waits for its devices while the kubelet has only us."""
        known = pod.uid in self._current.ledger.pods
        if not known and pod.phase == "Pending" and self._is_served():
            self._awaited.add(pod.uid)
