"""Between the kubelet's messages and the ledger's values: pure, both ways."""

from collections.abc import Iterable, Mapping

from agent.claims.values import Hold
from kubelet_api.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from kubelet_api.podresources.v1 import api_pb2 as podresources

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"

#: What Ascend Docker Runtime reads to mount the chips of a container.
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
#: "" for whole chips, "VIRTUAL" for virtual devices.
RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"
#: How the driver names the device of a chip, before the chip's number.
DEVICE = "/dev/davinci"


def device_list(
    devices: Iterable[tuple[str, bool]],
) -> deviceplugin.ListAndWatchResponse:
    """Render the device list; no NUMA topology, which would take the choice away.

    Args:
        devices: (device id, whether it is healthy).
    """
    return deviceplugin.ListAndWatchResponse(
        devices=[
            deviceplugin.Device(ID=name, health=HEALTHY if healthy else UNHEALTHY)
            for name, healthy in devices
        ]
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


def device_ids(
    pod: podresources.PodResources, resource: str
) -> Mapping[str, frozenset[str]]:
    """Return {container: its ids of one resource}, containers without any too."""
    return {
        container.name: frozenset(
            kubelet_id
            for devices in container.devices
            if devices.resource_name == resource
            for kubelet_id in devices.device_ids
        )
        for container in pod.containers
    }
