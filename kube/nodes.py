"""Nodes: get, and patch of labels and annotations."""

from collections.abc import Mapping

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client, object_path
from kube.errors import (
    MalformedError,
)
from kube.objects import Node
from service.decoding import DECODE_ERRORS, describe_decode_error


async def get(client: Client, name: str) -> Node:
    """Return a node from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
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
    answer = await client.request(
        "PATCH",
        path,
        body=objects.encode({"metadata": changes}),
        content_type=MERGE_PATCH,
    )
    return _node(answer, path)


def _node(body: bytes, path: str) -> Node:
    try:
        return msgspec.json.decode(body, type=Node)
    except DECODE_ERRORS as error:
        raise MalformedError(describe_decode_error(path, error)) from error
