"""Informer of one node's pods, from the API server, else from the kubelet itself."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from agent.api_client import ApiClient
from agent.claims.events import PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from agent.readiness import Readiness
from kube.errors import KubeError
from kube.objects import Pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: How long the API server may take to list this node's pods before the agent asks the
#: kubelet. Unit: seconds.
FIRST_LIST_S = 5.0


class ProductLinePods:
    """Pods of this node that ask for chips of one product line."""

    def __init__(
        self,
        node_pods: "PodInformer",
        store: LedgerStore,
        *,
        resource: str,
        is_served: Callable[[], bool],
    ) -> None:
        """Construct without pods; use `PodInformer.add_line`."""
        self._node_pods = node_pods
        self.store = store
        self._resource = resource
        self._is_served = is_served
        #: uids of pods that came while this agent's plugin was the only one
        self._expected: set[str] = set()

    def is_expected(self, uid: str) -> bool:
        """Tell whether a pod came while this agent's plugin was the only one."""
        return uid in self._expected

    def hurry(self) -> None:
        """Restart the watch on pods at once, if it is interrupted."""
        self._node_pods.hurry()

    def unseen_s(self) -> float:
        """Return for how many seconds the watch has been interrupted; 0 if it runs."""
        return self._node_pods.unseen_s()

    async def of_kubelet(self) -> Iterable[NpuPod]:
        """Return the pods that the kubelet lists; none without `kubelet_url`."""
        return await self._node_pods.of_kubelet(self._resource)

    def update(self, obj: Pod) -> None:
        """Tell the ledger of a new or changed pod, if it asks for these chips."""
        pod = ApiClient.npu_pod(obj, self._resource)
        if pod is not None:
            self._expect(pod)
            self.store.apply(PodUpdated(pod))

    def delete(self, uid: str) -> None:
        """Tell the ledger that a pod was deleted."""
        self._expected.discard(uid)
        self.store.apply(PodDeleted(uid))

    def _expect(self, pod: NpuPod) -> None:
        """Note a new pod that must get its devices from this agent's plugin."""
        is_known = pod.uid in self.store.ledger.pods
        if not is_known and pod.phase == "Pending" and self._is_served():
            self._expected.add(pod.uid)


class PodInformer:
    """Informer of the pods of one node; feeds the ledger of each product line."""

    def __init__(self, api: ApiClient, *, node: str, ready: Readiness) -> None:
        """Construct without starting the watch.

        Args:
            api: Open; owned by the caller.
            node: Name of the node.
            ready: Becomes ready under the key `pods` once they are known.
        """
        self._api = api
        self._node = node
        self._ready = ready
        self._lines: list[ProductLinePods] = []
        self._begun_s = clock.loop_s()
        self._synced = asyncio.Event()
        self.watch: ListWatch[Pod] = api.pods_of(node)

    def add_line(
        self, store: LedgerStore, *, resource: str, is_served: Callable[[], bool]
    ) -> ProductLinePods:
        """Feed the ledger of a product line; must be called before `run`.

        Args:
            store: Ledger that learns of each pod.
            resource: Resource for which the pods ask.
            is_served: Tells whether no other plugin serves the resource.
        """
        line = ProductLinePods(self, store, resource=resource, is_served=is_served)
        self._lines.append(line)
        return line

    @property
    def is_listed(self) -> bool:
        """Whether the API server has listed the pods once."""
        return self._synced.is_set()

    async def run(self) -> None:
        """Watch the pods until cancelled."""
        await self.watch.run(self._changed)

    async def wait_until_known(self) -> None:
        """Wait for a first list of pods, from the API server or the kubelet."""
        while True:
            try:
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._synced.wait()
            except TimeoutError:
                for line in self._lines:
                    for pod in await line.of_kubelet():
                        line.store.apply(PodUpdated(pod, by_kubelet=True))
                if not any(line.store.ledger.pods for line in self._lines):
                    continue
            self._ready.set_ready("pods")
            return

    def hurry(self) -> None:
        """Restart the watch at once, if it is interrupted."""
        self.watch.retry_now()

    def unseen_s(self) -> float:
        """Return for how many seconds the watch has been interrupted; 0 if it runs."""
        if not self.is_listed:
            return clock.loop_s() - self._begun_s
        return self.watch.disconnected_s()

    async def of_kubelet(self, resource: str) -> Iterable[NpuPod]:
        """Return the pods that the kubelet itself lists; none if it does not answer."""
        try:
            return await self._api.kubelet_pods(self._node, resource)
        except KubeError as error:
            log.warning("kubelet's own pods not read", extra={"reason": str(error)})
            return ()

    def _changed(self, change: Change[Pod]) -> None:
        match change:
            case Upserted(obj):
                for line in self._lines:
                    line.update(obj)
            case Deleted(obj):
                for line in self._lines:
                    line.delete(obj.metadata.uid)
            case Synced():
                self._synced.set()
                self._ready.set_ready("pods")
