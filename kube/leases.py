"""One Lease: get, create, and conditional write."""

from kube.client import Client, object_path, send_patch
from kube.objects import Lease, LeaseSpec, decode, encode

_GROUP = "coordination.k8s.io/v1"


class LeaseRequests:
    """Sender of the requests for one Lease; all have the same deadline."""

    def __init__(
        self, client: Client, namespace: str, name: str, *, timeout_s: float
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._timeout_s = timeout_s

    async def get(self) -> Lease:
        """Return the Lease from the API server.

        Raises:
            NotFoundError: It does not exist.
            KubeError: The API server refused, or cannot be reached.
        """
        path = self._path(self._name)
        answer = await self._client.request("GET", path, timeout_s=self._timeout_s)
        return decode(answer, Lease, path)

    async def create(self, spec: LeaseSpec) -> Lease:
        """Create the Lease and return it.

        Raises:
            ConflictError: The name exists.
            KubeError: The API server refused, or cannot be reached.
        """
        path = self._path("")
        body = {
            "apiVersion": _GROUP,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        answer = await self._client.request(
            "POST", path, body=encode(body), timeout_s=self._timeout_s
        )
        return decode(answer, Lease, path)

    async def write(self, current: Lease, spec: LeaseSpec) -> Lease:
        """Write the Lease if its version is still that of `current`; return it.

        Args:
            current: Last known state; its UID and version are preconditions.
            spec: New holder and times; labels and annotations stay.

        Raises:
            NotFoundError: It no longer exists.
            ConflictError: Another client has written it.
            KubeError: The API server refused, or cannot be reached.
        """
        meta, path = current.metadata, self._path(self._name)
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": spec,
        }
        answer = await send_patch(self._client, path, body, timeout_s=self._timeout_s)
        return decode(answer, Lease, path)

    def _path(self, name: str) -> str:
        return object_path("leases", name, namespace=self._namespace, group=_GROUP)
