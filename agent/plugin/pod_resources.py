"""Ask the kubelet which pod has which device ids (pod-resources v1).

The call `Get` asks about one pod and changes nothing. In kubelets before 1.34 `Get` is
off by default. If `Get` is off, the agent calls `List`, which asks about all pods.

`List` makes the kubelet forget the ids of ended pods. During an Allocate, this can lead
the kubelet to give one id to two pods. So `List` is called only while no Allocate runs
or is expected. An Allocate is expected for a moment after a GetPreferredAllocation.
"""

import asyncio
from pathlib import Path
from typing import TypeVar

import grpc

from agent.claims.events import InUse
from agent.plugin import translate
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.foreign import ForeignPods
from agent.plugin.rivals import identity
from agent.plugin.server import DIAL_OPTIONS
from agent.pods.reconciler import (
    READ_EACH_S,
    Containers,
    NotNowError,
    ResourcesError,
)
from kubelet_api.podresources.v1 import api_pb2, api_pb2_grpc
from service import clock

M = TypeVar("M")

#: Longest time of one call. Unit: seconds.
CALL_S = 2.0
#: Longest time of List, for which an Allocate may have to wait. Unit: seconds.
LIST_CALL_S = 0.25
MAX_MESSAGE_BYTES = 16 << 20


class RateLimit:
    """Rate limit for requests to one kubelet: at most one per `each_s` seconds.

    All clients of the kubelet share one limit. Each call of pod-resources waits for its
    turn.
    """

    def __init__(self, each_s: float) -> None:
        self._each_s = each_s
        self._next_s = float("-inf")

    async def wait_for_turn(self) -> None:
        """Wait until the caller may send its request.

        Callers are let through in the order in which they call.
        """
        now = clock.loop_s()
        at = max(now, self._next_s)
        self._next_s = at + self._each_s
        if at - now > clock.EARLY_S:
            await asyncio.sleep(at - now)


class PodResourcesClient:
    """Client of the kubelet's pod-resources API for the device ids of one resource."""

    def __init__(
        self,
        socket: Path,
        *,
        resource: str,
        activity: AllocateActivity,
        rate_limit: RateLimit | None = None,
        foreign: ForeignPods | None = None,
        list_call_s: float = LIST_CALL_S,
    ) -> None:
        """Construct the client without connecting; the first call connects.

        Args:
            activity: Tells whether an Allocate runs. During an Allocate, List must not
                be called.
            rate_limit: Rate limit for all calls, shared by all clients of this kubelet.
                If None, this client makes one of its own.
            foreign: Told of the devices of all resources.
            list_call_s: Deadline of List, in seconds.
        """
        self._socket = socket
        self._list_call_s = list_call_s
        self._channel = grpc.aio.insecure_channel(
            f"unix://{socket}",
            options=(
                *DIAL_OPTIONS,
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                # reconnect soon to a restarted kubelet
                ("grpc.max_reconnect_backoff_ms", 1000),
            ),
        )
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)
        self._resource = resource
        self._activity = activity
        self._foreign = foreign
        self._rate_limit = rate_limit or RateLimit(READ_EACH_S)
        self._get_is_off = False

    @property
    def kubelet(self) -> object:
        """Identity of the kubelet's pod-resources socket; None if it is absent.

        A kubelet that restarts creates a new socket, so the value changes.
        """
        return identity(self._socket)

    async def close(self) -> None:
        """Close the gRPC channel to the kubelet."""
        await self._channel.close(None)

    async def read(self, namespace: str, name: str) -> Containers:
        """Return {container: its device ids} of one pod.

        None if the kubelet does not have the pod. The method calls Get, or List if the
        kubelet has Get switched off.

        Raises:
            ResourcesError: The kubelet does not answer, or List is needed while the
                kubelet gives out devices.
        """
        if not self._get_is_off:
            try:
                return await self._get(namespace, name)
            except grpc.aio.AioRpcError as error:
                # of an unknown pod: "pod … in namespace … not found"
                if _is_kind(error, grpc.StatusCode.NOT_FOUND, "not found"):
                    return None
                if not _is_kind(error, grpc.StatusCode.UNIMPLEMENTED, "disabled"):
                    raise ResourcesError(
                        f"{error.code()}: {error.details()}"
                    ) from error
                self._get_is_off = True
        return await self._from_list(namespace, name)

    async def _get(self, namespace: str, name: str) -> Containers:
        await self._rate_limit.wait_for_turn()
        request = api_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        answer = _message(await self._stub.Get(request, timeout=CALL_S))
        return translate.device_ids(answer.pod_resources, self._resource)

    async def allocatable_ids(self, resource: str = "") -> frozenset[str] | None:
        """Return the device ids that the kubelet may give out for a resource.

        None if the kubelet does not answer. The ids may be those of a rival, since the
        kubelet does not tell which device plugin listed them.

        Args:
            resource: Resource of the ids; "" for the resource of this client.
        """
        await self._rate_limit.wait_for_turn()
        try:
            answer = _message(
                await self._stub.GetAllocatableResources(
                    api_pb2.AllocatableResourcesRequest(), timeout=CALL_S
                )
            )
        except (grpc.aio.AioRpcError, ResourcesError):
            return None
        if self._foreign is not None:
            self._foreign.offered(answer.devices)
        return translate.ids_among(answer.devices, resource or self._resource)

    async def forget_ended_pods(self) -> InUse:
        """Call List, which makes the kubelet forget the device ids of ended pods.

        Returns:
            {(namespace, pod, container): its device ids} of all containers that the
            kubelet lists.

        Raises:
            ResourcesError: The kubelet gives out devices now, or does not answer.
        """
        pods = (await self._list()).pod_resources
        return {
            (pod.namespace, pod.name, container): ids
            for pod in pods
            for container, ids in translate.device_ids(pod, self._resource).items()
        }

    async def _list(self) -> api_pb2.ListPodResourcesResponse:
        await self._rate_limit.wait_for_turn()
        if not self._activity.is_quiet:  # after the wait: an Allocate may have come
            raise NotNowError("devices are being given out: not listing now")
        with self._activity.listing():
            try:
                answer = _message(
                    await self._stub.List(
                        api_pb2.ListPodResourcesRequest(), timeout=self._list_call_s
                    )
                )
            except grpc.aio.AioRpcError as error:
                self._get_is_off = False  # the next kubelet may be a newer one
                raise ResourcesError(f"{error.code()}: {error.details()}") from error
        if self._foreign is not None:
            self._foreign.listed(answer.pod_resources)
        return answer

    async def _from_list(self, namespace: str, name: str) -> Containers:
        for pod in (await self._list()).pod_resources:
            if (pod.namespace, pod.name) == (namespace, name):
                return translate.device_ids(pod, self._resource)
        return None


def _message(answer: M | None) -> M:
    """Return the answer of a gRPC call after checking that grpc could decode it.

    Raises:
        ResourcesError: The answer is None, because grpc could not decode it.
    """
    if answer is None:
        raise ResourcesError("pod-resources: expected a message, found other bytes")
    return answer


def _is_kind(error: grpc.aio.AioRpcError, code: grpc.StatusCode, text: str) -> bool:
    """Whether the error of a Get call has a gRPC code, or none and this text.

    The kubelet's errors have no gRPC code, so they arrive with the code UNKNOWN.
    """
    is_unknown = error.code() is grpc.StatusCode.UNKNOWN
    return error.code() is code or (is_unknown and text in (error.details() or ""))
