"""ConfigMaps: read one, make one, and set only the keys that are ours."""

from collections.abc import Mapping

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client, object_path
from kube.errors import (
    MalformedError,
)
from kube.objects import ConfigMap, OwnerReference
from service.decoding import UNDECODABLE, undecodable


async def get(client: Client, namespace: str, name: str) -> ConfigMap:
    """Return a ConfigMap as the API server has it now.

    Args:
        client: An open client.
        namespace: The ConfigMap's.
        name: The ConfigMap's.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("configmaps", name, namespace=namespace)
    return _config_map(await client.request("GET", path), path)


async def create(  # noqa: PLR0913  # each is a field of the object
    client: Client,
    *,
    namespace: str,
    name: str,
    labels: Mapping[str, str],
    data: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    owner: OwnerReference | None = None,
) -> ConfigMap:
    """Make a ConfigMap and return it.

    Args:
        client: An open client.
        namespace: Where.
        name: Its name.
        labels: Its labels.
        data: Its content.
        annotations: Its annotations.
        owner: With whom it is to go; in the same namespace.

    Raises:
        ConflictError: There is one of that name.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("configmaps", "", namespace=namespace)
    metadata: dict[str, object] = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
    }
    if owner is not None:
        metadata["ownerReferences"] = [_reference(owner)]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": dict(data),
    }
    return _config_map(
        await client.request("POST", path, body=objects.encode(body)), path
    )


async def patch(  # noqa: PLR0913  # each is a field of the object
    client: Client,
    *,
    namespace: str,
    name: str,
    data: Mapping[str, str | None],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    resource_version: str | None = None,
    owner: OwnerReference | None = None,
) -> ConfigMap:
    """Set keys of a ConfigMap, leave all others as they are; return it afterwards.

    Args:
        client: An open client.
        namespace: The ConfigMap's.
        name: The ConfigMap's.
        data: New values; None removes a key.
        labels: Labels to set besides.
        annotations: Annotations to set besides; None removes a key.
        resource_version: Only if nobody has written since this version.
        owner: With whom it is to go, besides those that it has already; in the same
            namespace.

    Raises:
        NotFoundError: There is none.
        ConflictError: Somebody has written since `resource_version`.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = object_path("configmaps", name, namespace=namespace)
    metadata: dict[str, object] = {}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    if resource_version is not None:
        metadata["resourceVersion"] = resource_version
    if owner is not None:
        metadata["ownerReferences"] = [_reference(owner)]
    body: dict[str, object] = {"data": dict(data)}
    if metadata:
        body["metadata"] = metadata
    answer = await client.request(
        "PATCH",
        path,
        body=objects.encode(body),
        # a merge patch would replace the owners of others
        content_type=MERGE_PATCH if owner is None else STRATEGIC_PATCH,
    )
    return _config_map(answer, path)


def _reference(owner: OwnerReference) -> dict[str, str]:
    """Render an owner; it is not a controller, so it needs no right on it."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }


def _config_map(body: bytes, path: str) -> ConfigMap:
    try:
        return msgspec.json.decode(body, type=ConfigMap)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error
