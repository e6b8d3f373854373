"""Give out virtual devices (parts of chips), by one device plugin for each kind.

Each kind of virtual device has a resource. The kubelet's id of a virtual device names
its kind, its number and its chip (`Ascend910-4c.3cpu-100-0`). So the id alone decides
which device an Allocate gives out, without a claim. A container gets one virtual
device. A chip with virtual devices is not given out whole.
"""

import logging
from collections.abc import Iterable

from agent.claims.store import LedgerStore
from agent.devices.reading import Reading, VirtualDevice
from agent.monitor.chips import ChipMonitor
from agent.plugin.allocate_activity import AllocateActivity
from agent.plugin.list_and_watch import Context, ListAndWatchServicer
from agent.plugin.mounts import Mounts
from agent.plugin.translate import ListedDevice
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from scheduler_core.products.lookup import find_virtual_row
from scheduler_core.products.table import Product

log = logging.getLogger(__name__)


def name_of(device: VirtualDevice, product: Product) -> str:
    """Return the device id of a virtual device, in the format of MindCluster."""
    return f"{product.chip_prefix}{device.kind}-{device.number}-{device.chip}"


def rows_of(reading: Reading) -> tuple[Product, ...]:
    """Return the product row of each kind of virtual device that the driver reported.

    Kinds without a product row are left out.
    """
    kinds = sorted({device.kind for device in reading.virtual})
    rows = (find_virtual_row(f"{reading.product.resource}-{kind}") for kind in kinds)
    return tuple(row for row in rows if row is not None)


class VirtualServicer(ListAndWatchServicer):
    """Servicer of the device plugin that gives out virtual devices of one kind."""

    def __init__(
        self,
        store: LedgerStore,
        row: Product,
        *,
        activity: AllocateActivity,
        monitor: ChipMonitor,
        mounts: Mounts,
    ) -> None:
        """Construct the servicer of one kind of virtual device.

        Args:
            row: Product row that names the resource of this kind.
            activity: Records each running Allocate. A List of pod-resources during it
                can make the kubelet give one device id of any resource to two pods.
            monitor: Has the virtual devices as last read, and which chips may be given
                out.
        """
        super().__init__(store, self._list_devices, activity=activity, steers=False)
        self._row = row
        self._monitor = monitor
        self._mounts = mounts

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: object
    ) -> api_pb2.PreferredAllocationResponse:
        """Return no ids: the plugin's options tell the kubelet not to ask for them."""
        return api_pb2.PreferredAllocationResponse()

    async def Allocate(
        self, request: api_pb2.AllocateRequest, context: Context
    ) -> api_pb2.AllocateResponse:
        """Give each container the virtual device that its requested device id names.

        If a container cannot be served, the call fails with FAILED_PRECONDITION.
        """
        self.request_count += 1
        with self._activity.allocating():
            answers = []
            for container in request.container_requests:
                device = self._device_of(tuple(container.devices_ids))
                if isinstance(device, str):
                    await self._refuse(context, device)
                log.info(
                    "virtual device given out",
                    extra={"device": device.number, "chip": device.chip},
                )
                answers.append(self._mounts.answer_virtual(device))
        return api_pb2.AllocateResponse(container_responses=answers)

    def _device_of(self, ids: tuple[str, ...]) -> VirtualDevice | str:
        """Return the virtual device with the only id in `ids`, or why it is refused."""
        problem = self._mounts.problem()
        if problem or len(ids) != 1:
            return problem or f"a container gets 1 {self._row.resource}, not {len(ids)}"
        matches = (
            device
            for device in self._of_kind(self._monitor.reading)
            if name_of(device, self._monitor.product) == ids[0]
        )
        device = next(matches, None)
        if device is None:
            return f"{ids[0]} is no device of this node any more"
        if device.chip not in self._monitor.health.in_service:
            return f"{ids[0]} is a part of chip {device.chip}, which is unhealthy"
        if device.chip in self._store.ledger.foreign:
            users = self._store.ledger.foreign[device.chip]
            return f"{ids[0]} is a part of chip {device.chip}, which is used by {users}"
        return device

    def _list_devices(self) -> tuple[ListedDevice, ...]:
        foreign = self._store.ledger.foreign
        usable = set(self._monitor.health.in_service) - foreign.keys()
        return tuple(
            ListedDevice(name_of(device, self._monitor.product), device.chip in usable)
            for device in self._of_kind(self._monitor.reading)
        )

    def _of_kind(self, reading: Reading) -> Iterable[VirtualDevice]:
        resource = self._row.resource
        prefix = f"{reading.product.resource}-"
        return (
            device for device in reading.virtual if f"{prefix}{device.kind}" == resource
        )
