"""Device files of the host that a container with chips needs.

    all types of chip  davinci_manager; hisi_hdc, devmm_svm and dvpp_cmdlist if the host
                       has them; all files in /dev/uburma and /dev/ummu
    310B               davinci_manager_docker in place of davinci_manager, if the host
                       has it; also files for media (venc, hdmi) that the host has
    a whole chip       davinci<physical id>
    a part of a chip   vdavinci<number>, which the container sees as davinci<number>

Each call of `find` looks at the host's files again, because a driver may be loaded
after the agent has started.

Source:
    MindCluster's device plugin, `pkg/common/common.go` (at 22bb3d98).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.devices.reading import Reading, VirtualDevice

DEV = Path("/dev")
#: Prefix of a chip's device file, before the chip's number.
CHIP = "davinci"
#: Prefix of a virtual device's file, before the number of the virtual device.
VIRTUAL = "vdavinci"

_MANAGER = "davinci_manager"
_MANAGER_310B = "davinci_manager_docker"
_OPTIONAL = ("hisi_hdc", "devmm_svm", "dvpp_cmdlist")
_FOLDERS = ("uburma", "ummu")
_310B = "310B"
_OPTIONAL_OF_310B = (
    *("pngd", "venc", "upgrade", "sys", "svm0", "vdec", "vpc", "ts_aisle"),
    *("log_drv", "acodec", "ai", "ao", "vo", "hdmi"),
)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """Path of one device file on the host, and its path in the container."""

    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevices:
    """Device files of the host that a container with chips needs.

    The files in `common` serve every chip. `of_chip` returns the file of one chip,
    `of_virtual` the file of one virtual device (a part of a chip).
    """

    common: tuple[DeviceNode, ...]
    #: Path that each chip needs and that the host does not have; "" if it has all.
    missing: str = ""
    #: Path that replaces the device file of each simulated chip; "" for real chips.
    stand_in: str = ""

    def of_chip(self, chip: int) -> DeviceNode:
        """Return the device file of a chip.

        For a simulated chip, the path on the host is the attribute `stand_in`.
        """
        path = f"{DEV}/{CHIP}{chip}"
        return DeviceNode(self.stand_in or path, path)

    def of_virtual(self, device: VirtualDevice) -> DeviceNode:
        """Return the device file of a virtual device.

        In the container it is named like the file of a whole chip (`davinci<number>`).
        For a simulated chip, its path on the host is `self.stand_in`.
        """
        host = f"{DEV}/{VIRTUAL}{device.number}"
        return DeviceNode(self.stand_in or host, f"{DEV}/{CHIP}{device.number}")


def find(reading: Reading, dev: Path = DEV) -> HostDevices:
    """Find the device files of the host that containers with this node's chips need.

    Args:
        reading: What the driver reported, with the type of the chips. For simulated
            chips no file is looked up.
        dev: Folder in which this process sees the host's device files.
    """
    if reading.stand_in:
        return HostDevices(common=(), stand_in=reading.stand_in)
    is_310b = reading.chip_name.startswith(_310B)
    manager = _MANAGER
    if is_310b and (dev / _MANAGER_310B).exists():
        manager = _MANAGER_310B
    optional = (*_OPTIONAL, *(_OPTIONAL_OF_310B if is_310b else ()))
    names = [name for name in optional if (dev / name).exists()]
    return HostDevices(
        common=(
            DeviceNode(f"{DEV}/{manager}", f"{DEV}/{_MANAGER}"),
            *(DeviceNode(f"{DEV}/{name}", f"{DEV}/{name}") for name in names),
            *_in_folders(dev),
        ),
        missing="" if (dev / manager).exists() else f"{DEV}/{manager}",
    )


def chip_numbers(dev: Path = DEV) -> tuple[int, ...]:
    """Return the physical ids of the chips that have a device file, ascending."""
    found = (
        re.fullmatch(rf"{CHIP}([0-9]+)", path.name) for path in dev.glob(f"{CHIP}*")
    )
    return tuple(sorted(int(match[1]) for match in found if match))


def _in_folders(dev: Path) -> Iterator[DeviceNode]:
    for folder in _FOLDERS:
        try:
            names = sorted(
                path.name for path in (dev / folder).iterdir() if not path.is_dir()
            )
        except OSError:
            continue
        for name in names:
            yield DeviceNode(f"{DEV}/{folder}/{name}", f"{DEV}/{folder}/{name}")
