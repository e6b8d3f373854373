"""Between the kubelet's messages and the ledger's values: pure, both ways."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.claims import occupancy
from agent.claims.values import Hold, Ledger
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources
from scheduler_core import chips as chip_sets

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

#: What Ascend Docker Runtime reads to mount the chips of a container.
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
#: "" for whole chips, "VIRTUAL" for virtual devices.
RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"
#: How the driver names the device of a chip, before the chip's number.
DEVICE = "/dev/davinci"


@dataclass(frozen=True, slots=True)
class Listed:
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


def allocation(hold: Hold, stand_in: str) -> deviceplugin.ContainerAllocateResponse:
    """Render what a container gets: the physical ids of its chips, ascending.

    Args:
        hold: Its chips.
        stand_in: Device of the host that it gets for each of them; "" for none: then
            Ascend Docker Runtime mounts them, told by the environment.
    """
    chips = sorted(set(hold.chips))
    return deviceplugin.ContainerAllocateResponse(
        envs={VISIBLE_DEVICES: ",".join(map(str, chips)), RUNTIME_OPTIONS: ""},
        devices=[
            deviceplugin.DeviceSpec(
                container_path=f"{DEVICE}{chip}", host_path=stand_in, permissions="rw"
            )
            for chip in chips
            if stand_in
        ],
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
