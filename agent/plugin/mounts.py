"""How chips come into a container: by whom, and what he is told.

    runtime   Ascend Docker Runtime mounts them, told by the environment
    native    the kubelet has the container runtime mount them, device by device
    cdi       the container runtime mounts them by their names in the node's CDI spec

`auto` is `runtime` where the agent's own container was started by Ascend Docker
Runtime, which says so in the environment, and where there is no driver whose devices
could be mounted; else `native`. Never `cdi`: whether a container runtime reads specs
cannot be seen from here, and one that does not refuses every pod.
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

#: What Ascend Docker Runtime reads to mount the chips of a container.
VISIBLE_DEVICES = "ASCEND_VISIBLE_DEVICES"
#: "" for whole chips, "VIRTUAL" for virtual devices.
RUNTIME_OPTIONS = "ASCEND_RUNTIME_OPTIONS"
_VIRTUAL = "VIRTUAL"
#: Without it a container on a 310B may not follow links.
_ALLOW_LINK = "ASCEND_ALLOW_LINK"
#: What Ascend Docker Runtime gives every container that it starts.
STARTED_BY_RUNTIME = "ASCEND_DOCKER_RUNTIME"


class Mount(Enum):
    """Who mounts."""

    RUNTIME = "runtime"
    NATIVE = "native"
    CDI = "cdi"


AUTO = "auto"
KINDS = (AUTO, *(mount.value for mount in Mount))


def resolve(
    told: str, environment: Mapping[str, str], reading: Reading, dev: Path = DEV
) -> Mount:
    """Find out who mounts, where we were not told.

    Args:
        told: One of KINDS.
        environment: Ours.
        reading: What chips there are.
        dev: Where devices are, as we see them.
    """
    if told != AUTO:
        return Mount(told)
    by_runtime = environment.get(STARTED_BY_RUNTIME) == "True"
    if by_runtime or reading.stand_in or host_devices.look(reading, dev).missing:
        return Mount.RUNTIME
    return Mount.NATIVE


class Mounting:
    """Protects the node's CDI spec; everything else is looked at when it is needed."""

    def __init__(
        self,
        mount: Mount,
        *,
        hardware: Callable[[], Reading],
        cdi_dir: Path,
        dev: Path = DEV,
        beside: Callable[[], Iterable[Reading]] = tuple,
    ) -> None:
        """Write nothing yet.

        Args:
            mount: Who mounts.
            hardware: The last look at the chips.
            cdi_dir: Where container runtimes look for CDI specs.
            dev: Where devices are, as we see them.
            beside: The last look at the node's other product lines, of whose chips
                the node's spec tells as well.
        """
        self._beside = beside
        self._mount = mount
        self._hardware = hardware
        self._cdi_dir = cdi_dir
        self._dev = dev

    def problem(self) -> str | None:
        """Say why no container could get a chip now; None when it can.

        In a sentence for whoever looks at the pod that is refused for it. Puts the
        CDI spec in its place if it is not there.
        """
        if self._mount is Mount.RUNTIME:
            return None
        reading = self._hardware()
        devices = host_devices.look(reading, self._dev)
        if devices.missing:
            names = ", ".join(devices.missing)
            return f"this node has no {names}: its driver is not loaded"
        if self._mount is Mount.CDI:
            try:
                cdi.put(self._cdi_dir, self._spec(devices))
            except OSError as error:
                return f"the CDI spec cannot be written to {self._cdi_dir}: {error}"
        return None

    def _spec(self, devices: HostDevices) -> str:
        """Say how each chip of the node is mounted, whatever its product line."""
        lines = sorted(
            (self._hardware(), *self._beside()),
            key=lambda line: line.product.resource,
        )
        common = dict.fromkeys(
            node for line in lines for node in host_devices.look(line, self._dev).common
        )
        chips = {
            chip for line in lines for chip in chip_sets.ids_of(line.product.all_chips)
        }
        return cdi.render(
            replace(devices, common=tuple(common)),
            sorted(chips),
            [part for line in lines for part in line.virtual],
        )

    def answer(self, hold: Hold) -> api_pb2.ContainerAllocateResponse:
        """Render what a container gets: its chips by physical id, ascending."""
        chips = sorted(set(hold.chips))
        reading = self._hardware()
        if self._mount is Mount.CDI:
            return api_pb2.ContainerAllocateResponse(
                cdi_devices=[api_pb2.CDIDevice(name=cdi.name_of(c)) for c in chips]
            )
        if self._mount is Mount.NATIVE:
            devices = host_devices.look(reading, self._dev)
            nodes = (*devices.common, *map(devices.of_chip, chips))
            return api_pb2.ContainerAllocateResponse(devices=map(_spec, nodes))
        envs = {VISIBLE_DEVICES: ",".join(map(str, chips)), RUNTIME_OPTIONS: ""}
        if reading.chip_name.startswith("310B"):
            envs[_ALLOW_LINK] = "True"
        stand_ins = host_devices.HostDevices(common=(), stand_in=reading.stand_in)
        return api_pb2.ContainerAllocateResponse(
            envs=envs,
            devices=[
                _spec(stand_ins.of_chip(chip)) for chip in chips if reading.stand_in
            ],
        )

    def answer_virtual(
        self, device: VirtualDevice
    ) -> api_pb2.ContainerAllocateResponse:
        """Render what a container gets: one part of a chip, in a chip's place."""
        if self._mount is Mount.CDI:
            name = cdi.name_of_virtual(device)
            return api_pb2.ContainerAllocateResponse(
                cdi_devices=[api_pb2.CDIDevice(name=name)]
            )
        devices = host_devices.look(self._hardware(), self._dev)
        own = _spec(devices.of_virtual(device))
        if self._mount is Mount.NATIVE:
            return api_pb2.ContainerAllocateResponse(
                devices=[*map(_spec, devices.common), own]
            )
        return api_pb2.ContainerAllocateResponse(
            envs={VISIBLE_DEVICES: str(device.number), RUNTIME_OPTIONS: _VIRTUAL},
            devices=[own] if devices.stand_in else [],
        )

    def farewell(self, *, is_needed: bool) -> None:
        """Leave nothing behind that nobody needs.

        Args:
            is_needed: Whether there are containers with chips: they may be started
                again while no agent runs.
        """
        if self._mount is Mount.CDI and not is_needed:
            cdi.remove(self._cdi_dir)


def _spec(node: DeviceNode) -> api_pb2.DeviceSpec:
    return api_pb2.DeviceSpec(
        container_path=node.container, host_path=node.host, permissions="rw"
    )
