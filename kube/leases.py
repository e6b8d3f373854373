"""Leases: get, create, and conditional write."""

from kube.client import Client, object_path, send_patch
from kube.objects import Lease, LeaseSpec, decode, encode

_GROUP = "coordination.k8s.io/v1"


async def get(client: Client, namespace: str, name: str, *, timeout_s: float) -> Lease:
    """Return a Lease from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("leases", name, namespace=namespace, group=_GROUP)
    answer = await client.request("GET", path, timeout_s=timeout_s)
    return decode(answer, Lease, path)


async def create(
    client: Client, namespace: str, name: str, spec: LeaseSpec, *, timeout_s: float
) -> Lease:
    """Create a Lease and return it.

    Raises:
        ConflictError: The name exists.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("leases", "", namespace=namespace, group=_GROUP)
    body = {
        "apiVersion": _GROUP,
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    answer = await client.request("POST", path, body=encode(body), timeout_s=timeout_s)
    return decode(answer, Lease, path)


async def write(
    client: Client, lease: Lease, spec: LeaseSpec, *, timeout_s: float
) -> Lease:
    """Write a Lease if its version is still that of `lease`; return it afterwards.

    Args:
        client: An open client.
        lease: Last known state; its UID and version are preconditions.
        spec: New holder and times; labels and annotations stay.
        timeout_s: Deadline for the answer; seconds.

    Raises:
        NotFoundError: It no longer exists.
        ConflictError: Another client has written it.
        KubeError: The API server refused, or cannot be reached.
    """
    meta = lease.metadata
    path = object_path("leases", meta.name, namespace=meta.namespace, group=_GROUP)
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": spec,
    }
    answer = await send_patch(client, path, body, timeout_s=timeout_s)
    return decode(answer, Lease, path)
