"""Give out parts of chips by claims, as whole chips are given out.

A container gets one part. `agent.plugin.vnpu` serves the kinds without claims.
"""

from collections.abc import Callable, Mapping

from agent.claims.values import Hold
from agent.devices.reading import VirtualDevice
from agent.plugin.list_and_watch import Context
from agent.plugin.mounts import Mounts
from agent.plugin.servicer import Servicer
from kubelet_api.deviceplugin.v1beta1 import api_pb2


class PartMounts:
    """Renderer of the answers to Allocate for the parts of one kind."""

    def __init__(
        self, whole: Mounts, devices: Callable[[], Mapping[int, VirtualDevice]]
    ) -> None:
        """Construct the renderer of one kind.

        Args:
            whole: Renderer for the chips.
            devices: Returns all parts that the driver ever showed, by id.
        """
        self._whole, self._devices = whole, devices

    def problem(self) -> str | None:
        """Return a sentence why no part can be mounted now; None if no reason is."""
        return self._whole.problem()

    def answer(self, hold: Hold) -> api_pb2.ContainerAllocateResponse:
        """Render the part of Allocate's answer that mounts the part of a hold."""
        (part,) = hold.chips
        return self._whole.answer_virtual(self._devices()[part])


class PartServicer(Servicer):
    """Servicer of the device plugin that gives out parts of one kind."""

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """Give each container one part; refuse a container that asks for more."""
        counts = (len(asked.devices_ids) for asked in request.container_requests)
        wrong = next((count for count in counts if count != 1), None)
        if wrong is not None:
            resource = self._store.ledger.product.resource
            await self._refuse(context, f"a container gets 1 {resource}, not {wrong}")
        return await super().Allocate(request, context)
