"""Which devices of the host a container with chips needs, by kind of chip.

    every chip         davinci_manager, and what of hisi_hdc, devmm_svm and dvpp_cmdlist
                       the host has; all of /dev/uburma and /dev/ummu
    310B               as manager davinci_manager_docker, where the host has it; media
    200I SoC A1        the devices of its own system on a chip, all of them
    each chip          davinci<physical id>
    a part of a chip   vdavinci<number>, as davinci<number>

Looked at when they are needed, because a driver may be loaded after us.

Source:
    MindCluster's device plugin, `pkg/common/common.go` (at 22bb3d98).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.devices.reading import Reading, VirtualDevice

DEV = Path("/dev")
#: How the driver names the device of a chip, before the chip's number.
CHIP = "davinci"
#: And that of a part of a chip, before its own.
VIRTUAL = "vdavinci"

_MANAGER = "davinci_manager"
_MANAGER_310B = "davinci_manager_docker"
_OPTIONAL = ("hisi_hdc", "devmm_svm", "dvpp_cmdlist")
_FOLDERS = ("uburma", "ummu")
_SOC_A1 = "Atlas 200I SoC A1"
_OF_SOC_A1 = (
    *("vpc", "vdec", "sys", "spi_smbus", "user_config", "ts_aisle", "svm0"),
    *("log_drv", "memory_bandwidth", "upgrade"),
)
_OPTIONAL_OF_SOC_A1 = ("event_sched", "xsmem_dev")
_310B = "310B"
_OPTIONAL_OF_310B = (
    *("pngd", "venc", "upgrade", "sys", "svm0", "vdec", "vpc", "ts_aisle"),
    *("log_drv", "acodec", "ai", "ao", "vo", "hdmi"),
)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One device: where the host has it, and where the container gets it."""

    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """What containers get besides the devices of their own chips."""

    common: tuple[DeviceNode, ...]
    #: Devices without which no chip can be used, and that are not there.
    missing: tuple[str, ...] = ()
    #: Device that takes the place of each chip's own; "" for none.
    stand_in: str = ""

    def of_chip(self, chip: int) -> DeviceNode:
        """The device of a chip."""
        own = f"{DEV}/{CHIP}{chip}"
        return DeviceNode(self.stand_in or own, own)

    def of_virtual(self, device: VirtualDevice) -> DeviceNode:
        """The device of a part of a chip: to a container it is a chip."""
        host = f"{DEV}/{VIRTUAL}{device.number}"
        return DeviceNode(self.stand_in or host, f"{DEV}/{CHIP}{device.number}")


def look(reading: Reading, dev: Path = DEV) -> HostDevices:
    """Look which devices there are.

    Args:
        reading: What chips they are; of simulated ones nothing is looked for.
        dev: Where devices are, as we see them.
    """
    if reading.stand_in:
        return HostDevices(common=(), stand_in=reading.stand_in)
    is_310b = reading.chip_name.startswith(_310B)
    manager = _MANAGER
    if is_310b and (dev / _MANAGER_310B).exists():
        manager = _MANAGER_310B
    required = _OF_SOC_A1 if reading.product_type == _SOC_A1 else ()
    optional = (
        *_OPTIONAL,
        *(_OPTIONAL_OF_310B if is_310b else ()),
        *(_OPTIONAL_OF_SOC_A1 if required else ()),
    )
    names = (*required, *(name for name in optional if (dev / name).exists()))
    return HostDevices(
        common=(
            DeviceNode(f"{DEV}/{manager}", f"{DEV}/{_MANAGER}"),
            *(DeviceNode(f"{DEV}/{name}", f"{DEV}/{name}") for name in names),
            *_in_folders(dev),
        ),
        missing=tuple(
            f"{DEV}/{name}"
            for name in (manager, *required)
            if not (dev / name).exists()
        ),
    )


def _in_folders(dev: Path) -> Iterator[DeviceNode]:
    for folder in _FOLDERS:
        try:
            found = sorted(e.name for e in (dev / folder).iterdir() if not e.is_dir())
        except OSError:
            continue
        for name in found:
            yield DeviceNode(f"{DEV}/{folder}/{name}", f"{DEV}/{folder}/{name}")
