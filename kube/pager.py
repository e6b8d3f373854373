"""Lists of a collection: read in pages, all of one version."""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from kube.client import JSON, METADATA, Client
from kube.errors import GoneError, MalformedError
from kube.objects import ObjectList, ObjectVersion, VersionOnly, decode

#: Objects per page, as in kubectl and client-go.
PAGE_SIZE = 500
#: Largest page; no cluster has more objects of a kind.
LARGEST_PAGE = 1_000_000
_TIMEOUT_S = 60.0


class HasMeta(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectVersion:
        """Identity and version of the object."""


T = TypeVar("T", bound=HasMeta)


class Listing(Generic[T]):
    """Collection of the API server that is read in pages.

    Owns the page size. It grows after an expired list, until a list ends in time.
    """

    def __init__(  # noqa: PLR0913  # settings of a list-watch
        self,
        client: Client,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str],
        page_size: int = PAGE_SIZE,
        accept: str = JSON,
        transform: Callable[[T], T] | None = None,
    ) -> None:
        """Store the request; `read` sends it.

        Args:
            client: An open client.
            path: Collection, such as `/api/v1/pods`.
            kind: Struct of its objects.
            params: fieldSelector and labelSelector; empty for the whole collection.
            page_size: Objects per page.
            accept: Media types for the answer.
            transform: Trims each object before it is stored; None keeps it whole.
        """
        self._transform = transform
        self._client = client
        self._path = path
        self._params = params
        self._page_size = page_size
        self._accept = accept
        self._kind = kind

    def versions_only(self) -> "Listing[VersionOnly]":
        """Return a listing of the same collection with identities and versions only."""
        return Listing(
            self._client,
            self._path,
            VersionOnly,
            params=self._params,
            page_size=self._page_size,
            accept=METADATA,
        )

    def decode_object(self, raw: msgspec.Raw) -> T:
        """Return one object of the server's answer, decoded and trimmed.

        Raises:
            MalformedError: It does not decode as the listing's struct.
        """
        obj = decode(raw, self._kind, self._path)
        return obj if self._transform is None else self._transform(obj)

    async def read(self) -> tuple[dict[str, T], str]:
        """Return all objects by UID, and the version of the list.

        Raises:
            GoneError: The list expired between two pages; the next has larger pages.
            KubeError: The server refused or garbled a page.
        """
        objects: list[T] = []
        version = await self.visit_all(objects.append)
        return {uid_of(obj): obj for obj in objects}, version

    async def visit_all(self, visit: Callable[[T], None]) -> str:
        """Read all objects, page by page, and return the version of the list.

        Args:
            visit: Called with each object on the event loop; must not block.

        Raises:
            GoneError: The list expired between two pages; the next has larger pages.
            KubeError: The server refused or garbled a page.
        """
        params = {**self._params, "limit": str(self._page_size)}
        while True:
            try:
                page = await self._page(params)
            except GoneError:
                # etcd compacted the list's version. Larger pages take less time in
                # all, so a later list ends in time.
                self._page_size = min(self._page_size * 4, LARGEST_PAGE)
                raise
            for raw in page.items or ():
                visit(self.decode_object(raw))
            continue_token = page.metadata.continue_
            if not continue_token:
                return self._require_version(page.metadata.resource_version)
            if continue_token == params.get("continue"):
                raise MalformedError(
                    f"LIST {self._path}: expected another page, found the same again"
                )
            params = params | {"continue": continue_token}

    async def _page(self, params: dict[str, str]) -> ObjectList:
        body = await self._client.request(
            "GET",
            self._path,
            params=params,
            accept=self._accept,
            timeout_s=_TIMEOUT_S,
        )
        return decode(body, ObjectList, self._path)

    def _require_version(self, version: str) -> str:
        if not version:
            problem = "found no metadata.resourceVersion"
            raise MalformedError(f"LIST {self._path}: expected a version, {problem}")
        return version


def uid_of(obj: HasMeta) -> str:
    """Return the UID of an object, or `namespace/name` if it has none."""
    return obj.metadata.uid or f"{obj.metadata.namespace}/{obj.metadata.name}"
