"""Write the node's CDI spec, a file that tells container runtimes how to mount chips.

CDI is the Container Device Interface. The kubelet passes the container runtime the CDI
names of a container's chips. The spec lists the device files for each name:

    {"cdiVersion": "0.5.0", "kind": "huawei.com/ascend-affinity",
     "devices": [{"name": "0", "containerEdits": {"deviceNodes": [...]}}, ...],
     "containerEdits": {"deviceNodes": [...]}}

When a container restarts, the kubelet gives it the same CDI names, even while no agent
runs. So a stopping agent removes the spec file only if no ledger has a hold. The
default folder of the file is on tmpfs, so the file is gone after a reboot.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from agent.devices.reading import VirtualDevice
from agent.plugin.host_devices import DeviceNode, HostDevices

#: Used by no other program: two specs that name one device make it unusable.
KIND = "huawei.com/ascend-affinity"
#: The first version with `hostPath`; nothing newer is needed.
VERSION = "0.5.0"
FILE = "huawei.com-ascend-affinity.json"


def name_of(chip: int) -> str:
    """Return the qualified CDI name (`<kind>=<number>`) of a chip."""
    return f"{KIND}={chip}"


def name_of_virtual(device: VirtualDevice) -> str:
    """Return the qualified CDI name (`<kind>=v<number>`) of a virtual device."""
    return f"{KIND}=v{device.number}"


def render(
    devices: HostDevices, chips: Iterable[int], virtual: Iterable[VirtualDevice]
) -> str:
    """Return the CDI spec of a node as JSON text.

    Args:
        chips: Numbers of all chips that the node may ever give out.
        virtual: Every virtual device (part of a chip) of the node.
    """
    entries = [(str(chip), devices.of_chip(chip)) for chip in chips]
    entries += [(f"v{device.number}", devices.of_virtual(device)) for device in virtual]
    document = {
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            {"name": name, "containerEdits": _edits([node])} for name, node in entries
        ],
        "containerEdits": _edits(devices.common),
    }
    return json.dumps(document, indent=2) + "\n"


def _edits(nodes: Iterable[DeviceNode]) -> dict[str, list[dict[str, str]]]:
    rendered = [
        {"path": node.container, "hostPath": node.host, "permissions": "rw"}
        for node in nodes
    ]
    return {"deviceNodes": rendered} if rendered else {}


def put(folder: Path, text: str) -> None:
    """Write a CDI spec into a folder, unless the spec file there already has this text.

    Raises:
        OSError: The spec cannot be written.
    """
    path = folder / FILE
    with suppress(OSError):
        if path.read_text() == text:
            return
    # runtimes read names that end in .json or .yaml, so they ignore this one
    temporary = folder / f".{FILE}-{os.getpid()}"
    try:
        temporary.write_text(text)
        temporary.chmod(0o644)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def remove(folder: Path) -> None:
    """Remove the node's CDI spec from a folder; ignore a failure."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
