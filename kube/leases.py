"""Leases: read one, make one, and take or renew one that nobody else has written."""

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client
from kube.errors import MalformedError
from kube.objects import Lease, LeaseSpec
from service.decoding import UNDECODABLE, undecodable

_GROUP = "coordination.k8s.io/v1"


async def get(client: Client, namespace: str, name: str, *, timeout_s: float) -> Lease:
    """Return a Lease as the API server has it now.

    Args:
        client: An open client.
        namespace: The Lease's.
        name: The Lease's.
        timeout_s: Deadline for the answer.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = _path(namespace, name)
    return _lease(await client.request("GET", path, timeout_s=timeout_s), path)


async def create(
    client: Client, namespace: str, name: str, spec: LeaseSpec, *, timeout_s: float
) -> Lease:
    """Make a Lease and return it.

    Args:
        client: An open client.
        namespace: Where.
        name: Its name.
        spec: Who holds it.
        timeout_s: Deadline for the answer.

    Raises:
        ConflictError: There is one of that name.
        KubeError: The API server said no otherwise, or cannot be reached.
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
    client: Client, before: Lease, spec: LeaseSpec, *, timeout_s: float
) -> Lease:
    """Write a Lease if it is still as it was read; return it afterwards.

    Args:
        client: An open client.
        before: As it was read, or written last.
        spec: Who holds it now; labels and annotations stay.
        timeout_s: Deadline for the answer.

    Raises:
        NotFoundError: There is none any more.
        ConflictError: Somebody has written it since.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    meta = before.metadata
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
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error
