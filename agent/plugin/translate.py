"""Between the kubelet's messages and the ledger's values: pure, both ways."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent.claims import occupancy, values
from agent.claims.values import Ledger
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources
from scheduler_core.node import chips as chip_sets

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


class Listed(NamedTuple):
    """One device as the kubelet is told."""

    name: str
    is_healthy: bool
    #: NUMA nodes of the chips behind it; none where the kubelet is not to align
    numa: tuple[int, ...] = ()


def listed(ledger: Ledger, numa: Sequence[int]) -> tuple[Listed, ...]:
    """Return the device list.

    Args:
        ledger: The state.
        numa: NUMA node of each chip; empty to say nothing about it: the kubelet
            would align by it, which takes the choice away from a scheduler.
    """
    behind = occupancy.chips_behind(ledger) if numa else {}
    return tuple(
        Listed(
            name,
            is_healthy,
            tuple(sorted({numa[c] for c in chip_sets.ids_of(behind.get(name, 0))})),
        )
        for name, is_healthy in occupancy.devices(ledger)
    )


class DeviceList:
    """The device list of each ledger. Protects that it is made when it may differ.

    A ledger changes ten times while one pod starts; two of them concern the list.
    """

    def __init__(self) -> None:
        """Know none."""
        self._basis: object = None
        self._listed: tuple[Listed, ...] = ()

    def of(self, ledger: Ledger, numa: Sequence[int]) -> tuple[Listed, ...]:
        """Return `listed` of these."""
        bad = ledger.unhealthy | values.releasing(ledger)
        basis = ledger.product, ledger.holds, bad, tuple(numa)
        if basis != self._basis:
            self._basis, self._listed = basis, listed(ledger, numa)
        return self._listed


def healthy(devices: Iterable[Listed]) -> frozenset[str]:
    """Return the ids that the kubelet may give out."""
    return frozenset(device.name for device in devices if device.is_healthy)


def device_list(devices: Iterable[Listed]) -> deviceplugin.ListAndWatchResponse:
    """Render the device list."""
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
    """Return the ids of one resource among devices of all resources."""
    return frozenset(
        kubelet_id
        for each in devices
        if each.resource_name == resource
        for kubelet_id in each.device_ids
    )


def device_ids(
    pod: podresources.PodResources, resource: str
) -> Mapping[str, frozenset[str]]:
    """Return {container: its ids of one resource}, containers without any too."""
    return {
        container.name: ids_among(container.devices, resource)
        for container in pod.containers
    }
