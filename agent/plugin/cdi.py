"""The node's CDI spec: how a container runtime mounts a chip that it is told by name.

    {"cdiVersion": "0.5.0", "kind": "huawei.com/ascend-affinity",
     "devices": [{"name": "0", "containerEdits": {"deviceNodes": [...]}}, ...],
     "containerEdits": {"deviceNodes": [...]}}

A container that is started again is given the same names by its kubelet, whether or
not we run. So the spec stays when the agent stops, unless nothing is given out; it lies
on tmpfs and is gone with the machine's next start.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from agent.devices.reading import VirtualDevice
from agent.plugin.host_devices import DeviceNode, HostDevices

#: A kind of our own: two specs that name one device make it unusable.
KIND = "huawei.com/ascend-affinity"
#: The first with `hostPath`; what is newer is not needed.
VERSION = "0.5.0"
FILE = "huawei.com-ascend-affinity.json"


def name_of(chip: int) -> str:
    """The name by which a container runtime finds a chip."""
    return f"{KIND}={chip}"


def name_of_virtual(device: VirtualDevice) -> str:
    """The name by which a container runtime finds a part of a chip."""
    return f"{KIND}=v{device.number}"


def render(
    devices: HostDevices, chips: Iterable[int], virtual: Iterable[VirtualDevice]
) -> str:
    """The spec of a node.

    Args:
        devices: The host's.
        chips: Every chip that may ever be given out.
        virtual: Every part of a chip.
    """
    named = [(str(chip), devices.of_chip(chip)) for chip in chips]
    named += [(f"v{part.number}", devices.of_virtual(part)) for part in virtual]
    document = {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": _edits([node])} for name, node in named
        ],
        "containerEdits": _edits(devices.common),
    }
    return json.dumps(document, indent=2) + "\n"


def _edits(nodes: Iterable[DeviceNode]) -> dict[str, list[dict[str, str]]]:
    rendered = list(_nodes(nodes))
    return {"deviceNodes": rendered} if rendered else {}


def _nodes(nodes: Iterable[DeviceNode]) -> Iterator[dict[str, str]]:
    for node in nodes:
        yield {"path": node.container, "hostPath": node.host, "permissions": "rw"}


def put(folder: Path, text: str) -> None:
    """Have a spec stand in a folder; writes only what is not there already.

    Raises:
        OSError: It cannot be written.
    """
    path = folder / FILE
    with suppress(OSError):
        if path.read_text() == text:
            return
    # runtimes read what ends in .json or .yaml, so this name is nobody's yet
    making = folder / f".{FILE}-{os.getpid()}"
    try:
        making.write_text(text)
        making.chmod(0o644)
        making.rename(path)
    except OSError:
        making.unlink(missing_ok=True)
        raise


def remove(folder: Path) -> None:
    """Take the spec away."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
