"""The configuration annotation: a pod's chips with their addresses, as JSON.

Written for the training program and the operators that start it. This is its
minimal form: addresses that we do not know are given as the reference gives them.
"""

import json
from collections.abc import Iterable

#: what stands for an address that the driver did not give
_NO_ADDRESS = "-1"
#: what stands for a number that the server type does not have
_UNKNOWN = -2


def render(pod_name: str, pod_uid: str, host_ip: str, chips: Iterable[int]) -> str:
    """The annotation's text.

    Args:
        pod_name: `metadata.name`.
        pod_uid: `metadata.uid`.
        host_ip: The node's InternalIP; "" when it has none.
        chips: Physical ids of the mounted chips, in any order.

    Source:
        MindCluster device plugin, `ascend-910-configuration`: order of keys, devices
        by integer id, -1 for an unknown address, -2 for an unknown number.
    """
    document = {
        "pod_name": pod_name,
        "server_id": pod_uid,
        "host_ip": host_ip,
        "super_pod_id": _UNKNOWN,
        "devices": [
            {
                "device_id": str(chip),
                "device_ip": _NO_ADDRESS,
                "super_device_id": str(_UNKNOWN),
            }
            for chip in sorted(chips)
        ],
        "rack_id": 0,
        "server_index": str(_UNKNOWN),
        "server_ip": host_ip,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
