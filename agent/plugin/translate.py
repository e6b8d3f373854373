"""Translate between the kubelet's gRPC messages and the values in a ledger.

All functions are pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.claims import occupancy, values
from agent.claims.values import Ledger
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources
from scheduler_core.node import chips as chip_sets

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


class ListedDevice(NamedTuple):
    """Entry of the device list: the id of a device, its health and its NUMA nodes."""

    name: str
    is_healthy: bool
    #: NUMA nodes of its chips; empty if the kubelet shall not align by them
    numa: tuple[int, ...] = ()


class DeviceList:
    """Cache of one product line's device list, computed again only when necessary.

    Most changes of a ledger do not concern the device list.
    """

    def __init__(self) -> None:
        #: all that the cached list was computed from
        self._basis: object = None
        self._listed: tuple[ListedDevice, ...] = ()

    def of(self, ledger: Ledger, numa: Sequence[int]) -> tuple[ListedDevice, ...]:
        """Return each device id with its health and NUMA nodes, for the kubelet.

        Args:
            ledger: Ledger of the product line.
            numa: NUMA node of each chip. Empty if the scheduler extender chooses the
                chips, because NUMA nodes could make the kubelet choose others.
        """
        bad = ledger.unhealthy | values.releasing_chips(ledger)
        basis = ledger.product, ledger.holds, bad, tuple(numa)
        if basis == self._basis:
            return self._listed
        self._basis = basis
        chips = occupancy.map_ids_to_chips(ledger) if numa else {}
        self._listed = tuple(
            ListedDevice(
                name,
                is_healthy,
                tuple(sorted({numa[c] for c in chip_sets.ids_of(chips.get(name, 0))})),
            )
            for name, is_healthy in occupancy.list_devices(ledger)
        )
        return self._listed


def healthy(devices: Iterable[ListedDevice]) -> frozenset[str]:
    """Return the ids of the healthy devices; the kubelet gives out only these."""
    return frozenset(device.name for device in devices if device.is_healthy)


def device_list(devices: Iterable[ListedDevice]) -> deviceplugin.ListAndWatchResponse:
    """Return the ListAndWatch message that carries these devices."""
    return deviceplugin.ListAndWatchResponse(
        devices=[
            deviceplugin.Device(
                ID=device.name,
                health=HEALTHY if device.is_healthy else UNHEALTHY,
                topology=_topology(device.numa),
            )
            for device in devices
        ]
    )


def _topology(nodes: tuple[int, ...]) -> deviceplugin.TopologyInfo | None:
    if not nodes:
        return None
    return deviceplugin.TopologyInfo(
        nodes=[deviceplugin.NUMANode(ID=node) for node in nodes]
    )


def ids_among(
    devices: Iterable[podresources.ContainerDevices], resource: str
) -> frozenset[str]:
    """Return the ids of those devices that belong to one resource."""
    return frozenset(
        kubelet_id
        for device in devices
        if device.resource_name == resource
        for kubelet_id in device.device_ids
    )


def device_ids(
    pod: podresources.PodResources, resource: str
) -> Mapping[str, frozenset[str]]:
    """Return the device ids of `resource` that each container of a pod has.

    A container without ids of the resource has an empty set.
    """
    return {
        container.name: ids_among(container.devices, resource)
        for container in pod.containers
    }
