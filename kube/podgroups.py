"""Volcano's PodGroups: read and write of their conditions.

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


class _PodGroup(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Status | None = None


class PodGroupRequests:
    """Sender of requests that read and write conditions of PodGroups."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, namespace: str, name: str) -> tuple[str, Sequence[Condition]]:
        """Return a PodGroup's resourceVersion, and its conditions in their order.

        Raises:
            NotFoundError: It does not exist.
            KubeError: The API server refused, or cannot be reached.
        """
        path = _path(namespace, name)
        group = decode(await self._client.request("GET", path), _PodGroup, path)
        conditions = group.status.conditions if group.status else None
        return group.metadata.resource_version, conditions or ()

    async def write(
        self, namespace: str, name: str, version: str, conditions: Sequence[Condition]
    ) -> None:
        """Write all conditions of a PodGroup if its resourceVersion is `version`.

        Raises:
            NotFoundError: It does not exist.
            ConflictError: It was written after `version`.
            KubeError: The API server refused, or cannot be reached.
        """
        body = {
            "metadata": {"resourceVersion": version},
            "status": {"conditions": conditions},
        }
        await send_patch(self._client, _path(namespace, name), body)


def _path(namespace: str, name: str) -> str:
    return object_path("podgroups", name, namespace=namespace, group=_VERSION)
