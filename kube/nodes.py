"""Nodes: get, find, and patch of labels and annotations.

A module of its own: each kind of object has its requests in one place.
"""

from collections.abc import Mapping

from kube.client import Client, object_path, send_patch
from kube.objects import Node, ObjectList, decode


async def get(client: Client, name: str) -> Node:
    """Return a node from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("nodes", name)
    return decode(await client.request("GET", path), Node, path)


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
) -> Node:
    """Set labels and annotations of a node, keep all others; return it afterwards.

    None removes a key. The write needs no UID: a node of the same name is the same
    machine.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("nodes", name)
    metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    changes = {field: values for field, values in metadata.items() if values}
    return decode(await send_patch(client, path, {"metadata": changes}), Node, path)
