"""Render answers to Allocate, which tell another program to mount chips in a container.

The mount method says which program mounts the chips, and by what:

    runtime   Ascend Docker Runtime mounts them, by an environment variable
    native    the container runtime mounts them, by a list of device files
    cdi       the container runtime mounts them, by names in the node's CDI spec

CDI is the Container Device Interface. The setting `auto` means `runtime` in each of
three cases, else `native`:

    Ascend Docker Runtime started the agent's own container (ASCEND_DOCKER_RUNTIME=True)
    the host lacks required device files
    the chips are simulated

`auto` never means `cdi`, because the agent cannot see whether the container runtime
reads CDI specs. A container runtime that does not read CDI specs would refuse
containers with chips, or start them without their chips.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path

from agent.claims.values import Hold
from agent.devices.reading import Reading, VirtualDevice
from agent.plugin import cdi, host_devices
from agent.plugin.host_devices import DEV, DeviceNode, HostDevices
from kubelet_api.deviceplugin.v1beta1 import api_pb2
from scheduler_core.node import chips as chip_sets

#: Variable that names the chips which Ascend Docker Runtime mounts.
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
#: Variable with "" for whole chips, "VIRTUAL" for virtual devices.
RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"
_VIRTUAL = "VIRTUAL"
#: Variable that allows a container on a 310B to follow symbolic links.
_ALLOW_LINK = "ASCEND_ALLOW_LINK"
#: Variable that Ascend Docker Runtime sets in every container that it starts.
STARTED_BY_RUNTIME = "ASCEND_DOCKER_RUNTIME"


class MountMethod(Enum):
    """Ways to mount chips into a container; the module's docstring explains each."""

    RUNTIME = "runtime"
    NATIVE = "native"
    CDI = "cdi"


AUTO = "auto"


def resolve(
    setting: str, environment: Mapping[str, str], reading: Reading, dev: Path = DEV
) -> MountMethod:
    """Return the mount method that a setting names; for `auto`, choose one.

    The module's docstring says how `auto` chooses.

    Args:
        setting: `auto`, or a value of `MountMethod`.
        environment: Environment variables of the agent.
        reading: What the driver last reported about the node's chips.
        dev: Folder of device files, as this process sees it.
    """
    if setting != AUTO:
        return MountMethod(setting)
    by_runtime = environment.get(STARTED_BY_RUNTIME) == "True"
    if by_runtime or reading.stand_in or host_devices.find(reading, dev).missing:
        return MountMethod.RUNTIME
    return MountMethod.NATIVE


class Mounts:
    """Renderer of the answers to Allocate for one product line.

    With the method `cdi`, it also writes and removes the node's CDI spec.
    """

    def __init__(
        self,
        mount: MountMethod,
        *,
        last_reading: Callable[[], Reading],
        cdi_dir: Path,
        dev: Path = DEV,
        readings: Callable[[], Iterable[Reading]] = tuple,
    ) -> None:
        """Construct the renderer of one product line without writing the CDI spec.

        Args:
            last_reading: Returns what the driver last reported about the product line.
            cdi_dir: Folder in which container runtimes look for CDI specs.
            dev: Folder of device files, as this process sees it.
            readings: Returns the driver's last reports about all product lines of the
                node. The node's CDI spec has their chips, too.
        """
        self._readings = readings
        self._mount = mount
        self._last_reading = last_reading
        self._cdi_dir = cdi_dir
        self._dev = dev

    def problem(self) -> str | None:
        """Return a sentence why no chip can be mounted now; None if no reason is known.

        With this sentence, an Allocate is refused and the agent is not ready. With the
        method `runtime`, nothing is checked. With the method `cdi`, this call also
        writes the CDI spec if the file is missing or out of date.
        """
        if self._mount is MountMethod.RUNTIME:
            return None
        reading = self._last_reading()
        devices = host_devices.find(reading, self._dev)
        if devices.missing:
            return f"this node has no {devices.missing}: its driver is not loaded"
        if self._mount is MountMethod.CDI:
            try:
                cdi.put(self._cdi_dir, self._spec(devices))
            except OSError as error:
                return f"the CDI spec cannot be written to {self._cdi_dir}: {error}"
        return None

    def _spec(self, devices: HostDevices) -> str:
        """Return the node's CDI spec as JSON text, for the chips of all product lines.

        Args:
            devices: Device files of this product line.
        """
        readings = (self._last_reading(), *self._readings())
        by_resource = {reading.product.resource: reading for reading in readings}
        lines = [by_resource[resource] for resource in sorted(by_resource)]
        common = dict.fromkeys(
            node for line in lines for node in host_devices.find(line, self._dev).common
        )
        chips = {
            chip for line in lines for chip in chip_sets.ids_of(line.product.all_chips)
        }
        return cdi.render(
            replace(devices, common=tuple(common)),
            sorted(chips),
            [device for line in lines for device in line.virtual],
        )

    def answer(self, hold: Hold) -> api_pb2.ContainerAllocateResponse:
        """Render the part of Allocate's answer that mounts the chips of a hold.

        The chips are ordered by physical id, ascending.
        """
        chips = sorted(set(hold.chips))
        envs = {VISIBLE_DEVICES: ",".join(map(str, chips)), RUNTIME_OPTIONS: ""}
        if self._last_reading().chip_name.startswith("310B"):
            envs[_ALLOW_LINK] = "True"
        return self._render(
            map(cdi.name_of, chips),
            lambda devices: map(devices.of_chip, chips),
            envs,
        )

    def answer_virtual(
        self, device: VirtualDevice
    ) -> api_pb2.ContainerAllocateResponse:
        """Render the part of Allocate's answer that mounts a virtual device."""
        return self._render(
            [cdi.name_of_virtual(device)],
            lambda devices: [devices.of_virtual(device)],
            {VISIBLE_DEVICES: str(device.number), RUNTIME_OPTIONS: _VIRTUAL},
        )

    def _render(
        self,
        cdi_names: Iterable[str],
        find_nodes: Callable[[HostDevices], Iterable[DeviceNode]],
        envs: Mapping[str, str],
    ) -> api_pb2.ContainerAllocateResponse:
        """Render an answer in the words of the mount method.

        Args:
            cdi_names: Qualified CDI names of the mounted chips.
            find_nodes: Returns the device files of the mounted chips.
            envs: Variables for Ascend Docker Runtime.
        """
        if self._mount is MountMethod.CDI:
            cdi_devices = [api_pb2.CDIDevice(name=name) for name in cdi_names]
            return api_pb2.ContainerAllocateResponse(cdi_devices=cdi_devices)
        is_native, reading = self._mount is MountMethod.NATIVE, self._last_reading()
        nodes: Iterable[DeviceNode] = ()
        if is_native or reading.stand_in:
            devices = host_devices.find(reading, self._dev)
            nodes = (*devices.common, *find_nodes(devices))
        return api_pb2.ContainerAllocateResponse(
            envs={} if is_native else envs, devices=map(_spec, nodes)
        )

    def clean_up(self, *, has_holds: bool) -> None:
        """Remove the node's CDI spec (method `cdi`) if no container needs the spec.

        A container with chips needs the spec when it restarts, even while no agent
        runs. Who has virtual devices is not known.

        Args:
            has_holds: Whether the agent knows a hold of this node.
        """
        readings = (self._last_reading(), *self._readings())
        is_needed = has_holds or any(reading.virtual for reading in readings)
        if self._mount is MountMethod.CDI and not is_needed:
            cdi.remove(self._cdi_dir)


def _spec(node: DeviceNode) -> api_pb2.DeviceSpec:
    return api_pb2.DeviceSpec(
        container_path=node.container, host_path=node.host, permissions="rw"
    )
