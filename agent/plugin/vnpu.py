"""Parts of chips that were cut beforehand: one resource, and one plugin, for each kind.

Such a device is what the kubelet's id says, so nobody has to find out afterwards which
pod got which: the id names the kind, the driver's number and the chip it is a part of
(`Ascend910-4c.3cpu-100-0`). A container gets one of them, and a chip with any is not
given out whole.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.claims.store import Current
from agent.devices.reading import Reading, VirtualDevice
from agent.plugin.list_and_watch import Context, ListServicer
from agent.plugin.mounts import Mounting
from agent.plugin.translate import Listed
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from scheduler_core.products.lookup import virtual as row_of
from scheduler_core.products.table import Product

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What there is of virtual devices now."""

    reading: Reading
    #: Chips that may be given out, whole or in parts.
    in_service: tuple[int, ...]


def name_of(device: VirtualDevice, product: Product) -> str:
    """Its id: kind, number and chip, as the reference writes it."""
    return f"{product.chip_prefix}{device.kind}-{device.number}-{device.chip}"


def rows_of(reading: Reading) -> tuple[Product, ...]:
    """A row for each kind of virtual device that there is, by its resource."""
    kinds = sorted({device.kind for device in reading.virtual})
    rows = (row_of(f"{reading.product.resource}-{kind}") for kind in kinds)
    return tuple(row for row in rows if row is not None)


def parents_of(reading: Reading) -> tuple[int, ...]:
    """The chips that have virtual devices, ascending."""
    return tuple(sorted({device.chip for device in reading.virtual}))


class VirtualServicer(ListServicer):
    """The device plugin's RPCs for one kind of virtual device."""

    def __init__(
        self,
        current: Current,
        row: Product,
        *,
        parts: Callable[[], Parts],
        mounting: Mounting,
    ) -> None:
        """Serve the devices of a kind.

        Args:
            current: Wakes whoever waits for news.
            row: Names the resource.
            parts: What there is now.
            mounting: How they come into containers.
        """
        super().__init__(current, self._listed, steers=False)
        self._row = row
        self._parts = parts
        self._mounting = mounting

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        """Prefer nothing: we do not ask for it, see GetDevicePluginOptions."""
        return api_pb2.PreferredAllocationResponse()

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """Hand out the device that the kubelet has chosen."""
        with self._answering():
            answers = []
            for each in request.container_requests:
                device = self._chosen(tuple(each.devices_ids))
                if isinstance(device, str):
                    await self._refuse(context, device)
                log.info(
                    "virtual device given out",
                    extra={"device": device.number, "chip": device.chip},
                )
                answers.append(self._mounting.answer_virtual(device))
        return api_pb2.AllocateResponse(container_responses=answers)

    def _chosen(self, ids: tuple[str, ...]) -> VirtualDevice | str:
        """Return the device that an id names, or why nobody gets it."""
        problem = self._mounting.problem()
        if problem or len(ids) != 1:
            return problem or f"a container gets 1 {self._row.resource}, not {len(ids)}"
        parts = self._parts()
        named = (
            device
            for device in self._of_kind(parts.reading)
            if name_of(device, parts.reading.product) == ids[0]
        )
        device = next(named, None)
        if device is None:
            return f"{ids[0]} is no device of this node any more"
        if device.chip not in parts.in_service:
            return f"{ids[0]} is a part of chip {device.chip}, which is unhealthy"
        return device

    def _listed(self) -> tuple[Listed, ...]:
        parts = self._parts()
        return tuple(
            Listed(
                name_of(device, parts.reading.product),
                device.chip in parts.in_service,
            )
            for device in self._of_kind(parts.reading)
        )

    def _of_kind(self, reading: Reading) -> Iterable[VirtualDevice]:
        resource = self._row.resource
        prefix = f"{reading.product.resource}-"
        return (d for d in reading.virtual if f"{prefix}{d.kind}" == resource)
