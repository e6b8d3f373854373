"""Leases: get, create, and conditional write."""

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client
from kube.errors import MalformedError
from kube.objects import Lease, LeaseSpec
from service.decoding import DECODE_ERRORS, describe_decode_error

_GROUP = "coordination.k8s.io/v1"


async def get(client: Client, namespace: str, name: str, *, timeout_s: float) -> Lease:
    """Return a Lease from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = _path(namespace, name)
    return _lease(await client.request("GET", path, timeout_s=timeout_s), path)


async def create(
    client: Client, namespace: str, name: str, spec: LeaseSpec, *, timeout_s: float
) -> Lease:
    """Create a Lease and return it.

    Raises:
        ConflictError: The name exists.
        KubeError: The API server refused, or cannot be reached.
    """
    path = _path(namespace, "")
    body = {
        "apiVersion": _GROUP,
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    answer = await client.request(
        "POST", path, body=objects.encode(body), timeout_s=timeout_s
    )
    return _lease(answer, path)


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
    path = _path(meta.namespace, meta.name)
    body = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "spec": spec,
    }
    answer = await client.request(
        "PATCH",
        path,
        body=objects.encode(body),
        content_type=MERGE_PATCH,
        timeout_s=timeout_s,
    )
    return _lease(answer, path)


def _path(namespace: str, name: str) -> str:
    leases = f"/apis/{_GROUP}/namespaces/{namespace}/leases"
    return f"{leases}/{name}" if name else leases


def _lease(body: bytes, path: str) -> Lease:
    try:
        return msgspec.json.decode(body, type=Lease)
    except DECODE_ERRORS as error:
        raise MalformedError(describe_decode_error(path, error)) from error
