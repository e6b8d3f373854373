"""Configuration annotation of a pod: its chips with their addresses, as JSON.

Training programs and their operators make a rank table of it.
Unknown addresses are written as MindCluster writes them.
"""

import json
from collections.abc import Iterable
from ipaddress import ip_address

from scheduler_core.wire.addresses import Address, Addresses

#: text for an address that the driver did not give
_NO_ADDRESS = "-1"
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def render(
    pod_name: str,
    pod_uid: str,
    host_ip: str,
    chips: Iterable[int],
    addresses: Addresses,
) -> str:
    """Render the annotation's text.

    Args:
        pod_name: `metadata.name`.
        pod_uid: `metadata.uid`.
        host_ip: InternalIP of the node; "" when it has none.
        chips: Physical ids of the mounted chips, in any order.
        addresses: Known addresses of the server and its chips.

    Source:
        MindCluster device plugin, `ascend-910-configuration`: order of keys, devices
        by integer id, -1 for an unknown address, -2 for an unknown number.
    """
    document = {
        "pod_name": pod_name,
        "server_id": pod_uid,
        "host_ip": host_ip,
        "super_pod_id": addresses.super_pod_id,
        "devices": [
            {
                "device_id": str(chip),
                "device_ip": address.ip or _NO_ADDRESS,
                "super_device_id": str(address.super_device_id),
            }
            for chip, address in ((chip, addresses.of(chip)) for chip in sorted(chips))
        ],
        "rack_id": 0,
        "server_index": str(addresses.server_index),
        "server_ip": host_ip,
    }
    return _ENCODER.encode(document)


def parse_devices(text: str) -> dict[int, Address]:
    """Parse {physical id: address} of the mounted chips; {} if `render` gives no such.

    Such a text is rendered again whole, so its faults matter to nothing.
    """
    try:
        return {
            int(device["device_id"]): Address(
                ip=_parse_ip(device["device_ip"]),
                super_device_id=int(device["super_device_id"]),
            )
            for device in json.loads(text)["devices"]
        }
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def _parse_ip(text: object) -> str:
    return "" if text == _NO_ADDRESS else str(ip_address(str(text)))
