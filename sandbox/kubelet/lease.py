"""How does a cluster know that the node lives?

By a Lease of the node's name, renewed again and again: a controller calls a node whose
Lease is 50 s old unreachable, and evicts its pods five minutes later.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import NoReturn

from sandbox.apiclient import FAILURES, ApiClient, ApiStatusError, Object
from service import clock

#: nodeLeaseDurationSeconds, and how often the kubelet renews: a quarter of it
#: (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction).
_DURATION_S = 40
_RENEW_S = _DURATION_S / 4
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def renew(client: ApiClient, node_name: str) -> NoReturn:
    """Renew the node's Lease for ever; what fails is done the next time.

    Args:
        client: Speaks as the node.
        node_name: The node's.
    """
    while True:
        with suppress(*FAILURES):  # the Lease grows old, which is what it is for
            await _renew_once(client, node_name)
        await asyncio.sleep(_RENEW_S)


async def _renew_once(client: ApiClient, node_name: str) -> None:
    spec: Object = {
        "holderIdentity": node_name,
        "leaseDurationSeconds": _DURATION_S,
        "renewTime": clock.rfc3339(clock.wall_s()).replace("Z", ".000000Z"),
    }
    try:
        await client.patch(f"{_LEASES}/{node_name}", {"spec": spec})
    except ApiStatusError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        meta: Object = {"name": node_name, "namespace": "kube-node-lease"}
        await client.create(_LEASES, {"metadata": meta, "spec": spec})
