"""Volcano's PodGroups: what is said of one, and what others know of it besides.

Their status is no resource of its own, so it is written with the object.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from kube import objects
from kube.client import MERGE_PATCH, Client
from kube.errors import MalformedError
from service.decoding import UNDECODABLE, undecodable

_VERSION = "scheduling.volcano.sh/v1beta1"
#: Whatever is in a condition, it is written back as it was.
Condition = Mapping[str, object]


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[dict[str, object]] | None = None


class PodGroup(msgspec.Struct, frozen=True):
    """A PodGroup, as far as its conditions go."""

    metadata: _Metadata = _Metadata()
    status: _Status | None = None

    @property
    def conditions(self) -> Sequence[Condition]:
        """Its conditions, in their order."""
        return (self.status.conditions if self.status else None) or ()


async def get(client: Client, namespace: str, name: str) -> PodGroup:
    """Return a PodGroup as the API server has it now.

    Raises:
        NotFoundError: There is none.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    path = _path(namespace, name)
    body = await client.request("GET", path)
    try:
        return msgspec.json.decode(body, type=PodGroup)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error


async def set_conditions(
    client: Client,
    *,
    namespace: str,
    name: str,
    resource_version: str,
    conditions: Sequence[Condition],
) -> None:
    """Write all conditions of a PodGroup, if nobody has written since that version.

    Raises:
        NotFoundError: There is none.
        ConflictError: Somebody has written since `resource_version`.
        KubeError: The API server said no otherwise, or cannot be reached.
    """
    body = {
        "metadata": {"resourceVersion": resource_version},
        "status": {"conditions": conditions},
    }
    await client.request(
        "PATCH",
        _path(namespace, name),
        body=objects.encode(body),
        content_type=MERGE_PATCH,
    )


def _path(namespace: str, name: str) -> str:
    scope = f"/apis/{_VERSION}/namespaces/{quote(namespace, safe='')}"
    return f"{scope}/podgroups/{quote(name, safe='')}"
