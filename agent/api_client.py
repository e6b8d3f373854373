"""What the agent asks of the API server and of the kubelet's own API."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Self

from agent.claims.annotations import Patch, PatchError
from agent.observe.metrics import Metrics
from agent.settings import Settings
from kube import credentials, kubelet_pods, pods
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import ConflictError, KubeError, NotFoundError, UnreachableError
from kube.events import Recorder
from kube.objects import Pod
from kube.reflector import ListWatch
from scheduler_core.wire.pods import NpuPod

COMPONENT = "ascend-agent"
#: The kubelet waits for us meanwhile.
KUBELET_PODS_S = 0.5


class Api:
    """Protects the one client and the events that wait to be sent."""

    def __init__(
        self, client: Client, recorder: Recorder, *, given: Credentials, url: str
    ) -> None:
        """Use an open client; see `open`."""
        self.client = client
        self.recorder = recorder
        self._given = given
        self._kubelet_url = url

    @classmethod
    async def open(
        cls, stack: AsyncExitStack, settings: Settings, metrics: Metrics
    ) -> Self:
        """Open the client for as long as a stack lasts.

        Raises:
            SettingsError: There is no way to the API server.
        """
        given = credentials.given(
            kubeconfig_file=settings.kubeconfig,
            api_server=settings.api_server,
            service_account_dir=settings.service_account_dir,
            environ=os.environ,
        )
        client = await stack.enter_async_context(
            Client(given, user_agent=COMPONENT, count=metrics.count_request)
        )
        recorder = Recorder(client, component=COMPONENT, host=settings.node_name)
        return cls(client, recorder, given=given, url=settings.kubelet_url)

    def pods_of(self, node: str) -> ListWatch[Pod]:
        """Return the watch on the pods of one node."""
        only_ours = {"fieldSelector": f"spec.nodeName={node}"}
        return ListWatch(self.client, "/api/v1/pods", Pod, params=only_ours)

    @staticmethod
    def npu_pod(pod: Pod, resource: str) -> NpuPod | None:
        """Return a pod as the ledger sees it; None if it asks for no chips."""
        return pods.npu_pod(pod, resource)

    async def send(self, patch: Patch) -> NpuPod | None:
        """Set annotations of the pod with this uid; None if it has gone.

        Raises:
            PatchError: They are not set; try again later.
        """
        try:
            pod = await pods.patch_annotations(
                self.client,
                namespace=patch.namespace,
                name=patch.name,
                uid=patch.uid,
                annotations=patch.annotations,
            )
        except NotFoundError:
            return None
        except KubeError as error:
            # Of the name there is another pod, or somebody writes all the time: then
            # the server gives up, with the same code.
            if isinstance(error, ConflictError) and "uid" in error.message.lower():
                return None
            raise PatchError(f"{patch.namespace}/{patch.name}: {error}") from error
        return pods.npu_pod(pod, patch.resource)

    async def kubelet_pods(self, node: str, resource: str) -> Iterable[NpuPod]:
        """Return the NPU pods that the kubelet itself knows; none without its URL.

        Raises:
            KubeError: It does not say.
        """
        if not self._kubelet_url:
            return ()
        try:
            async with asyncio.timeout(KUBELET_PODS_S):
                found = await kubelet_pods.pods(
                    self._kubelet_url, await self._given.token(), self._given.ssl
                )
        except TimeoutError as error:
            text = f"{self._kubelet_url}/pods: no answer within {KUBELET_PODS_S} s"
            raise UnreachableError(text) from error
        ours = (pods.npu_pod(pod, resource) for pod in found)
        return tuple(pod for pod in ours if pod is not None and pod.node == node)
