"""Volcano's PodGroups: get, and write of their conditions.

Their CRD has no status subresource, so the status is written with the object.
"""

from collections.abc import Mapping, Sequence

import msgspec

from kube.client import Client, object_path, send_patch
from kube.objects import decode

_VERSION = "scheduling.volcano.sh/v1beta1"
#: {field: value} of a condition; unknown fields are written back unchanged.
Condition = Mapping[str, object]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[dict[str, object]] | None = None


class PodGroup(msgspec.Struct, frozen=True):
    """PodGroup with its version and conditions."""

    metadata: _Metadata = _Metadata()
    status: _Status | None = None

    @property
    def conditions(self) -> Sequence[Condition]:
        """Conditions, in their order; empty for none."""
        return (self.status.conditions if self.status else None) or ()


async def get(client: Client, namespace: str, name: str) -> PodGroup:
    """Return a PodGroup from the API server.

    Raises:
        NotFoundError: It does not exist.
        KubeError: The API server refused, or cannot be reached.
    """
    path = object_path("podgroups", name, namespace=namespace, group=_VERSION)
    return decode(await client.request("GET", path), PodGroup, path)


async def set_conditions(
    client: Client,
    *,
    namespace: str,
    name: str,
    resource_version: str,
    conditions: Sequence[Condition],
) -> None:
    """Write all conditions of a PodGroup if its version is `resource_version`.

    Raises:
        NotFoundError: It does not exist.
        ConflictError: It was written after `resource_version`.
        KubeError: The API server refused, or cannot be reached.
    """
    body = {
        "metadata": {"resourceVersion": resource_version},
        "status": {"conditions": conditions},
    }
    path = object_path("podgroups", name, namespace=namespace, group=_VERSION)
    await send_patch(client, path, body)
