"""Requests of the agent to the API server and to the kubelet's HTTP API."""

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import KW_ONLY, dataclass
from typing import Self

from agent.claims.annotations import Patch
from agent.observe.metrics import Metrics
from agent.settings import Settings
from kube import credentials, kubelet_pods, pods
from kube.client import Client
from kube.credentials import Credentials
from kube.errors import KubeError, UnreachableError
from kube.events import Recorder
from scheduler_core.wire.pods import NpuPod

COMPONENT = "ascend-agent"
#: Short, because the kubelet waits for Allocate meanwhile. Unit: seconds.
KUBELET_PODS_S = 0.5


@dataclass(frozen=True, slots=True)
class ApiClient:
    """API server client, event recorder, and credentials for the kubelet's HTTP API."""

    client: Client  #: open; the caller closes it
    recorder: Recorder  #: sends Kubernetes events through the client
    _: KW_ONLY
    credentials: Credentials  #: for requests to the kubelet
    url: str  #: of the kubelet's HTTP API; "" to send no requests to the kubelet

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        settings: Settings,
        metrics: Metrics,
        *,
        on_event: Callable[[KubeError | None], None],
    ) -> Self:
        """Open an API server client; return an `ApiClient` that uses it.

        Args:
            stack: Closes the API server client when it is closed itself.
            settings: With the address of the API server and the agent's credentials.
            metrics: Metrics in which requests and dropped events are counted.
            on_event: Called as `Recorder` says of its `on_outcome`.

        Raises:
            SettingsError: The settings yield no API server address or no credentials.
        """
        client_credentials = credentials.from_settings(
            kubeconfig_file=settings.kubeconfig,
            api_server=settings.api_server,
            service_account_dir=settings.service_account_dir,
            environ=os.environ,
        )
        client = await stack.enter_async_context(
            Client(
                client_credentials, user_agent=COMPONENT, count=metrics.count_request
            )
        )
        recorder = Recorder(
            client,
            component=COMPONENT,
            host=settings.node_name,
            count_dropped=metrics.events_dropped.inc,
            on_outcome=on_event,
        )
        return cls(
            client, recorder, credentials=client_credentials, url=settings.kubelet_url
        )

    async def send(self, patch: Patch) -> NpuPod | None:
        """Patch the annotations of a pod on the API server.

        Returns:
            The patched pod. None if the pod with the uid `patch.uid` is deleted, or if
            the pod asks for no chips of `patch.resource`.

        Raises:
            KubeError: The request failed, so the annotations are perhaps not set. Try
                again later.
        """
        try:
            pod = await pods.patch_annotations(self.client, patch, patch.annotations)
        except KubeError as error:
            if pods.has_gone(error):
                return None
            raise
        return pods.npu_pod(pod, patch.resource)

    async def kubelet_pods(self, node: str, resource: str) -> Iterable[NpuPod]:
        """Return the pods on `node` that ask for `resource`, as the kubelet lists them.

        Returns (), without a request, if the setting `kubelet_url` is empty.

        Raises:
            KubeError: The kubelet gives no usable answer within KUBELET_PODS_S.
        """
        if not self.url:
            return ()
        try:
            async with asyncio.timeout(KUBELET_PODS_S):
                listed = await kubelet_pods.pods(
                    self.url, await self.credentials.token(), self.credentials.ssl
                )
        except TimeoutError as error:
            text = f"{self.url}/pods: no answer within {KUBELET_PODS_S} s"
            raise UnreachableError(text) from error
        npu_pods = (pods.npu_pod(pod, resource) for pod in listed)
        return tuple(pod for pod in npu_pods if pod is not None and pod.node == node)
