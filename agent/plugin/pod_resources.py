"""Ask the kubelet which pod has which device ids (pod-resources v1).

`Get` asks about one pod and disturbs nothing. Kubelets before 1.34 have it
switched off; for those all pods are listed, which makes the kubelet forget the
ids of pods that just ended, and so is done only while nothing is given out.
"""

from pathlib import Path
from typing import TypeVar

import grpc

from agent.claims.events import InUse
from agent.plugin import translate
from agent.plugin.allocate_activity import Traffic
from agent.plugin.rate_limit import Pace
from agent.plugin.server import DIAL_OPTIONS, identity
from agent.pods.reconciler import READ_EACH_S, Containers, ResourcesError
from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc

M = TypeVar("M")

CALL_S = 2.0
LIST_CALL_S = 0.25
MAX_MESSAGE_BYTES = 16 << 20


class Resources:
    """Protects the channel to the pod-resources socket, and whether Get is on."""

    def __init__(
        self,
        socket: Path,
        *,
        resource: str,
        traffic: Traffic,
        pace: Pace | None = None,
    ) -> None:
        """Dial lazily.

        Args:
            socket: The kubelet's pod-resources socket.
            resource: The resource whose ids are wanted.
            traffic: Consulted before everything is listed.
            pace: Shared by all who ask this kubelet about pods, if there are others.
        """
        self._socket = socket
        self._channel = grpc.aio.insecure_channel(
            f"unix://{socket}",
            options=(
                *DIAL_OPTIONS,
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                # a restarted kubelet is to be found again soon
                ("grpc.max_reconnect_backoff_ms", 1000),
            ),
        )
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)
        self._resource = resource
        self._traffic = traffic
        self._pace = pace or Pace(READ_EACH_S)
        self._get_is_off = False

    @property
    def kubelet(self) -> object:
        """What tells the kubelet that would answer now from its successor."""
        return identity(self._socket)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def read(self, namespace: str, name: str) -> Containers:
        """Return what one pod has.

        Raises:
            ResourcesError: The kubelet cannot be asked now.
        """
        await self._pace.turn()
        if not self._get_is_off:
            try:
                return await self._get(namespace, name)
            except grpc.aio.AioRpcError as error:
                if _not_found(error):
                    return None
                if not _is_off(error):
                    raise ResourcesError(
                        f"{error.code()}: {error.details()}"
                    ) from error
                self._get_is_off = True
        return await self._from_list(namespace, name)

    async def _get(self, namespace: str, name: str) -> Containers:
        request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        answer = _message(await self._stub.Get(request, timeout=CALL_S))
        return translate.device_ids(answer.pod_resources, self._resource)

    async def offered(self, resource: str = "") -> frozenset[str] | None:
        """Return the ids that the kubelet would give out; None: it does not say.

        Whoever has listed them: the kubelet knows the resource, not the plugin.

        Args:
            resource: Whose ids; "" for those that are wanted anyway.
        """
        try:
            answer = _message(
                await self._stub.GetAllocatableResources(
                    api_pb2.AllocatableResourcesRequest(), timeout=CALL_S
                )
            )
        except (grpc.aio.AioRpcError, ResourcesError):
            return None
        return translate.ids_among(answer.devices, resource or self._resource)

    async def let_go(self) -> InUse:
        """Make the kubelet forget the ids of pods that have ended.

        Returns:
            The ids that each container has now.

        Raises:
            ResourcesError: Devices are being given out, or it does not answer.
        """
        listed = (await self._list()).pod_resources
        return {
            (pod.namespace, pod.name, container): ids
            for pod in listed
            for container, ids in translate.device_ids(pod, self._resource).items()
        }

    async def _list(self) -> api_pb2.ListPodResourcesResponse:
        if not self._traffic.is_quiet:
            raise ResourcesError("devices are being given out: not listing now")
        with self._traffic.listing():
            try:
                return _message(
                    await self._stub.List(
                        api_pb2.ListPodResourcesRequest(), timeout=LIST_CALL_S
                    )
                )
            except grpc.aio.AioRpcError as error:
                self._get_is_off = False  # it may come back as a newer kubelet
                raise ResourcesError(f"{error.code()}: {error.details()}") from error

    async def _from_list(self, namespace: str, name: str) -> Containers:
        for pod in (await self._list()).pod_resources:
            if (pod.namespace, pod.name) == (namespace, name):
                return translate.device_ids(pod, self._resource)
        return None


def _message(answer: M | None) -> M:
    """Return a call's answer, which grpc gives as None when its bytes are no message.

    Raises:
        ResourcesError: They are none.
    """
    if answer is None:
        raise ResourcesError("pod-resources: expected a message, found other bytes")
    return answer


def _not_found(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether the kubelet does not know the pod.

    It answers with a plain error, hence UNKNOWN: "pod … in namespace … not found".
    """
    return error.code() is grpc.StatusCode.NOT_FOUND or (
        error.code() is grpc.StatusCode.UNKNOWN
        and "not found" in (error.details() or "")
    )


def _is_off(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.UNIMPLEMENTED or (
        error.code() is grpc.StatusCode.UNKNOWN
        and "disabled" in (error.details() or "")
    )
