"""Informer of one node's pods, as listed by the API server or else by the kubelet."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from agent.api_client import ApiClient
from agent.claims.events import PodDeleted, PodUpdated
from agent.claims.store import LedgerStore
from kube.client import Client
from kube.errors import KubeError
from kube.objects import Pod
from kube.pods import npu_pod
from kube.reflector import Change, Deleted, ListWatch, Synced, Upserted
from scheduler_core.wire.pods import NpuPod
from service import clock

log = logging.getLogger(__name__)

#: How long the API server may take to list this node's pods before the agent asks the
#: kubelet. Unit: seconds.
FIRST_LIST_S = 5.0


class ProductLinePods:
    """Pods of this node that ask for chips of one product line.

    Each pod is sent to the ledger of that product line.
    """

    def __init__(self, store: LedgerStore, *, is_served: Callable[[], bool]) -> None:
        self.store = store
        self.resource = store.ledger.product.resource
        self._is_served = is_served
        #: uids of pods that came while this agent's plugin was the only one
        self._expected: set[str] = set()

    def is_expected(self, uid: str) -> bool:
        """Whether a pod must get its devices from the plugin of this agent.

        True if three facts were true when the pod watch first showed the pod. The
        ledger did not have the pod yet. The pod was Pending. Only this agent's plugin
        served the resource.
        """
        return uid in self._expected

    def update(self, obj: Pod) -> None:
        """Send a pod to the product line's ledger if it asks for chips of this line."""
        pod = npu_pod(obj, self.resource)
        if pod is not None:
            is_known = pod.uid in self.store.ledger.pods
            if not is_known and pod.phase == "Pending" and self._is_served():
                self._expected.add(pod.uid)
            self.store.apply(PodUpdated(pod))

    def delete(self, uid: str) -> None:
        """Tell the ledger that the pod with this UID was deleted."""
        self._expected.discard(uid)
        self.store.apply(PodDeleted(uid))


def make_watch(client: Client, node: str) -> ListWatch[Pod]:
    """Return the watch of one node's pods; it sends no request yet."""
    return ListWatch(
        client,
        "/api/v1/pods",
        Pod,
        params={"fieldSelector": f"spec.nodeName={node}"},
    )


class PodInformer:
    """Informer of one node's pods, which sends them to the ledgers of product lines."""

    def __init__(
        self,
        api: ApiClient,
        watch: ListWatch[Pod],
        *,
        node: str,
        on_known: Callable[[], object],
    ) -> None:
        """Construct without starting the pod watch.

        Args:
            api: Open client; the caller closes it.
            watch: Watch of the node's pods. It may have run before: then these pods are
                known at once.
            node: Name of the node.
            on_known: Called once the API server or the kubelet has listed the node's
                pods, perhaps more than once.
        """
        self._api = api
        self._node = node
        self._on_known = on_known
        self._lines: list[ProductLinePods] = []
        self._begun_s = clock.loop_s()
        self._synced = asyncio.Event()
        self.watch = watch

    def add_line(
        self, store: LedgerStore, *, is_served: Callable[[], bool]
    ) -> ProductLinePods:
        """Register a product line's ledger, so that `run` sends pods to this ledger.

        Call this before `run`. Only pods that request chips of the line are sent.

        Args:
            store: Ledger of the product line.
            is_served: Returns whether this agent's plugin, and no other, serves the
                resource.
        """
        line = ProductLinePods(store, is_served=is_served)
        self._lines.append(line)
        return line

    @property
    def is_listed(self) -> bool:
        """Whether the ledgers have the API server's list of the node's pods."""
        return self._synced.is_set()

    async def run(self) -> None:
        """Watch the node's pods and send them to the ledgers, until cancelled.

        Pods that the watch has already are sent first.
        """
        if self.watch.synced:
            for pod in self.watch.objects():
                self._changed(Upserted(pod))
            self._set_listed()
        await self.watch.run(self._changed)

    async def wait_until_known(self) -> None:
        """Wait until the API server, or else the kubelet, has listed the node's pods.

        While both lists are missing, the kubelet is asked every FIRST_LIST_S. Its list
        counts only if it has a pod that asks for chips. A list without such a pod looks
        the same as a failed request.
        """
        while True:
            try:
                async with asyncio.timeout(FIRST_LIST_S):
                    await self._synced.wait()
            except TimeoutError:
                for line in self._lines:
                    for pod in await self.of_kubelet(line.resource):
                        line.store.apply(PodUpdated(pod, by_kubelet=True))
                if not any(line.store.ledger.pods for line in self._lines):
                    continue
            self._on_known()
            return

    def hurry(self) -> None:
        """Reopen the node's pod watch, as far as `ListWatch.retry_now` says."""
        self.watch.retry_now()

    def unseen_s(self) -> float:
        """Return the seconds since the pod watch was interrupted; 0 if it is open.

        Before the API server's first list, return the seconds since this informer was
        constructed.
        """
        if not self.is_listed:
            return clock.loop_s() - self._begun_s
        return self.watch.disconnected_s()

    async def of_kubelet(self, resource: str) -> Iterable[NpuPod]:
        """Ask the kubelet for its pods, and return those that ask for `resource`.

        The result is empty if the setting `kubelet_url` is empty, or if the kubelet
        does not answer within `agent.api_client.KUBELET_PODS_S`.
        """
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
                self._set_listed()

    def _set_listed(self) -> None:
        self._synced.set()
        self._on_known()
