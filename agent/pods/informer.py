"""Which pods are on this node: by the API server, else by the kubelet itself."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from agent.api_client import Api
from agent.claims.events import PodGone, PodSeen
from agent.claims.store import Current
from agent.readiness import Readiness
from kube.errors import KubeError
from kube.objects import Pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: How long the API server may take to list this node's pods before we ask the
#: kubelet itself. Unit: seconds.
FIRST_LIST_S = 5.0


class LinePods:
    """The pods of this node that ask for the chips of one product line.

    Protects which of them wait for us.
    """

    def __init__(
        self,
        node_pods: "NodePods",
        current: Current,
        *,
        resource: str,
        is_served: Callable[[], bool],
    ) -> None:
        """Know nothing yet; see `NodePods.serve`."""
        self._node_pods = node_pods
        self.current = current
        self._resource = resource
        self._is_served = is_served
        #: uids of pods that came while the kubelet had no plugin but us
        self._awaited: set[str] = set()

    def awaits_us(self, uid: str) -> bool:
        """Tell whether a pod came while the kubelet had no plugin but us."""
        return uid in self._awaited

    def hurry(self) -> None:
        """Have the API server asked again at once, if it is not being followed."""
        self._node_pods.hurry()

    def unseen_s(self) -> float:
        """For how long the API server has not been followed; seconds, 0 if it is."""
        return self._node_pods.unseen_s()

    async def of_kubelet(self) -> Iterable[NpuPod]:
        """Return the pods that the kubelet itself knows, as far as it may be asked."""
        return await self._node_pods.of_kubelet(self._resource)

    def seen(self, obj: Pod) -> None:
        """Take in a pod as it is now, if it asks for these chips."""
        pod = Api.npu_pod(obj, self._resource)
        if pod is not None:
            self._await(pod)
            self.current.apply(PodSeen(pod))

    def gone(self, uid: str) -> None:
        """Take in that a pod is there no more."""
        self._awaited.discard(uid)
        self.current.apply(PodGone(uid))

    def _await(self, pod: NpuPod) -> None:
        """Remember a pod that waits for its devices while the kubelet has only us."""
        known = pod.uid in self.current.ledger.pods
        if not known and pod.phase == "Pending" and self._is_served():
            self._awaited.add(pod.uid)


class NodePods:
    """Protects whether the API server has listed the pods of this node."""

    def __init__(self, api: Api, *, node: str, ready: Readiness) -> None:
        """Know nothing yet.

        Args:
            api: The API server.
            node: The node that we serve.
            ready: Told when the pods are known.
        """
        self._api = api
        self._node = node
        self._ready = ready
        self._lines: list[LinePods] = []
        self._begun_s = clock.loop_s()
        self._synced = asyncio.Event()
        self.watch: ListWatch[Pod] = api.pods_of(node)

    def serve(
        self, current: Current, *, resource: str, is_served: Callable[[], bool]
    ) -> LinePods:
        """Tell a ledger of the pods that ask for its chips; before `run`.

        Args:
            current: The ledger, which is told of each pod.
            resource: Whose pods.
            is_served: Whether the kubelet has us for its plugin, and nobody else.
        """
        line = LinePods(self, current, resource=resource, is_served=is_served)
        self._lines.append(line)
        return line

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
                for line in self._lines:
                    for pod in await line.of_kubelet():
                        line.current.apply(PodSeen(pod, by_kubelet=True))
                if not any(line.current.ledger.pods for line in self._lines):
                    continue
            self._ready.has("pods")
            return

    def hurry(self) -> None:
        """Have the API server asked again at once, if it is not being followed."""
        self.watch.hurry()

    def unseen_s(self) -> float:
        """For how long the API server has not been followed; seconds, 0 if it is."""
        if not self.is_listed:
            return clock.loop_s() - self._begun_s
        return self.watch.lost_s()

    async def of_kubelet(self, resource: str) -> Iterable[NpuPod]:
        """Return the pods that the kubelet itself knows, as far as it may be asked."""
        try:
            return await self._api.kubelet_pods(self._node, resource)
        except KubeError as error:
            log.warning("kubelet's own pods not read", extra={"reason": str(error)})
            return ()

    def _changed(self, change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                for line in self._lines:
                    line.seen(obj)
            case Deleted(obj):
                for line in self._lines:
                    line.gone(obj.metadata.uid)
            case Synced():
                self._synced.set()
                self._ready.has("pods")
