"""How do the kubelet's device assignments survive its restart?

The file has the real one's name and fields. Its checksum is ours: the real one
hashes Go's own printed form of the structure, which nobody else can compute.
"""

import base64
import json
import zlib
from pathlib import Path

from kubelet_api.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import Assignment, DeviceTables

NAME = "kubelet_internal_checkpoint"
#: what the real kubelet files devices without topology under
_NO_NUMA_NODE = "-1"


def write(path: Path, tables: DeviceTables) -> None:
    """Store assignments and the names of healthy devices, atomically."""
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {_NO_NUMA_NODE: sorted(assignment.ids)},
                "AllocResp": base64.b64encode(
                    assignment.response.SerializeToString()
                ).decode(),
            }
            for (uid, container, resource), assignment in tables.assignments.items()
        ],
        "RegisteredDevices": {
            resource: sorted(ids) for resource, ids in tables.healthy.items()
        },
    }
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps({"Data": data, "Checksum": _checksum(data)}))
    draft.replace(path)


def read(path: Path, tables: DeviceTables, now: float) -> None:
    """Fill empty tables from the file, where there is one.

    Resources that were registered come back with no devices and a stopped
    plugin, so that capacity is 0 until it registers again.

    Raises:
        ValueError: the file is not what `write` writes.
    """
    if not path.exists():
        return
    stored = json.loads(path.read_text())
    data = stored["Data"]
    if stored["Checksum"] != _checksum(data):
        raise ValueError(f"{path}: checksum does not fit the data")
    for entry in data["PodDeviceEntries"]:
        key = (entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
        tables.assignments[key] = Assignment(
            ids=frozenset(i for ids in entry["DeviceIDs"].values() for i in ids),
            response=api_pb2.ContainerAllocateResponse.FromString(
                base64.b64decode(entry["AllocResp"])
            ),
        )
    tables.recount()
    for resource in data["RegisteredDevices"]:
        tables.healthy[resource] = set()
        tables.unhealthy[resource] = set()
        tables.endpoints[resource] = now


def _checksum(data: object) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
