"""Nodes: get, find, and patch of labels and annotations.

A module of its own: each kind of object has its requests in one place.
"""

from collections.abc import Mapping

from kube.client import Client, object_path, send_patch
from kube.objects import ManagedNode, Node, ObjectList, decode


async def get(client: Client, name: str) -> ManagedNode:
    """Return a node from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("nodes", name)
    return decode(await client.request("GET", path), ManagedNode, path)


async def find(client: Client, name: str) -> Node | None:
    """Return a node from a list of that one; None if it does not exist.

    For a program that may list nodes and not get one.

    Raises:
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("nodes", "")
    params = {"fieldSelector": f"metadata.name={name}"}
    answer = await client.request("GET", path, params=params)
    items = decode(answer, ObjectList, path).items or []
    return decode(items[0], Node, path) if items else None


async def patch(
    client: Client,
    name: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    resource_version: str = "",
) -> ManagedNode:
    """Set labels and annotations of a node, keep all others; return it afterwards.

    None removes a key. The write needs no UID: a node of the same name is the same
    machine.

    Args:
        client: An open client.
        name: Of the node.
        labels: To set or remove.
        annotations: To set or remove.
        resource_version: The version that must still stand; "" for any.

    Raises:
        NotFoundError: It does not exist.
        ConflictError: It has another version.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("nodes", name)
    metadata: dict[str, object] = {
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "resourceVersion": resource_version,
    }
    changes = {field: values for field, values in metadata.items() if values}
    answer = await send_patch(client, path, {"metadata": changes})
    return decode(answer, ManagedNode, path)
