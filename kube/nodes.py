"""Nodes: read one, and set labels and annotations of our own."""

from collections.abc import Mapping

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client, object_path
from kube.errors import (
    MalformedError,
)
from kube.objects import Node
from service.decoding import UNDECODABLE, undecodable


async def get(client: Client, name: str) -> Node:
    """Return a node as the API server has it now.

    Args:
        client: An open client.
        name: The node's.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("nodes", name)
    return _node(await client.request("GET", path), path)


async def patch(
    client: Client,
    name: str,
    *,
    labels: Mapping[str, str | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
) -> Node:
    """Set labels and annotations of a node, leave all others; return it afterwards.

    A node is its name (it is a machine, not a run), so no UID is asked for.

    Args:
        client: An open client.
        name: The node's.
        labels: New values; None removes a key.
        annotations: New values; None removes a key.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("nodes", name)
    metadata = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    wanted = {field: values for field, values in metadata.items() if values}
    answer = await client.request(
        "PATCH",
        path,
        body=objects.encode({"metadata": wanted}),
        content_type=MERGE_PATCH,
    )
    return _node(answer, path)


def _node(body: bytes, path: str) -> Node:
    try:
        return msgspec.json.decode(body, type=Node)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error
