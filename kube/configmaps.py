"""ConfigMaps: get, list by labels, create, patch of single keys, and delete."""

from collections.abc import Mapping

from kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client, object_path, send_patch
from kube.objects import ConfigMap, ObjectList, OwnerReference, decode, encode


async def get(client: Client, namespace: str, name: str) -> ConfigMap:
    """Return a ConfigMap from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("configmaps", name, namespace=namespace)
    return decode(await client.request("GET", path), ConfigMap, path)


async def find(
    client: Client, namespace: str, labels: Mapping[str, str]
) -> list[ConfigMap]:
    """Return the ConfigMaps of a namespace that have all these labels.

    Raises:
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("configmaps", "", namespace=namespace)
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    params = {"labelSelector": selector}
    answer = await client.request("GET", path, params=params)
    items = decode(answer, ObjectList, path).items or []
    return [decode(item, ConfigMap, path) for item in items]


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
    """Create a ConfigMap and return it.

    With an `owner` of the same namespace, the garbage collector deletes the ConfigMap
    after its owner.

    Raises:
        ConflictError: The name exists.
        KubeError: The API server refused, or cannot be reached.
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
    answer = await client.request("POST", path, body=encode(body))
    return decode(answer, ConfigMap, path)


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
    """Set keys of a ConfigMap, keep all other keys; return it afterwards.

    None removes a key of `data` or `annotations`. `resource_version` is a precondition;
    None sets none. `owner`, of the same namespace, is added to the owners that exist.

    Raises:
        NotFoundError: It does not exist.
        ConflictError: It was written after `resource_version`.
        KubeError: The API server refused, or cannot be reached.
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
    # a merge patch would replace all other owners
    content_type = MERGE_PATCH if owner is None else STRATEGIC_PATCH
    answer = await send_patch(client, path, body, content_type=content_type)
    return decode(answer, ConfigMap, path)


async def delete(client: Client, *, namespace: str, name: str, uid: str) -> None:
    """Delete the ConfigMap with this UID.

    Raises:
        NotFoundError: It does not exist.
        ConflictError: The ConfigMap of that name has another UID.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("configmaps", name, namespace=namespace)
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": uid},
    }
    await client.request("DELETE", path, body=encode(options))


def _reference(owner: OwnerReference) -> dict[str, str]:
    """Return an owner as JSON, without `controller`: that would need a right on it."""
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
