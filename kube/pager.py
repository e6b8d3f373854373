"""What is in a collection now: read in pages, all of one version."""

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from kube.client import JSON, METADATA, Client
from kube.errors import GoneError, MalformedError
from kube.objects import ObjectList, OnlyStamp, Stamp
from service.decoding import UNDECODABLE, undecodable

#: Objects per page; the API server's own clients use 500.
PAGE_SIZE = 500
#: More than any cluster has of anything.
LARGEST_PAGE = 1_000_000
_TIMEOUT_S = 60.0

_PAGES = msgspec.json.Decoder(ObjectList)


class HasMeta(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> Stamp:
        """Who it is."""


S = TypeVar("S")
T = TypeVar("T", bound=HasMeta)


class Listing(Generic[T]):
    """Protects how large pages are: so large that a list ends before it expires."""

    def __init__(  # noqa: PLR0913  # what a list-watch is told as well
        self,
        client: Client,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str],
        page_size: int = PAGE_SIZE,
        accept: str = JSON,
        keep: Callable[[T], T] | None = None,
    ) -> None:
        """Read nothing yet.

        Args:
            client: An open client.
            path: The collection, such as `/api/v1/pods`.
            kind: The struct that its objects decode to.
            params: fieldSelector and labelSelector, where only a part is wanted.
            page_size: Objects per page.
            accept: The forms of objects that will do.
            keep: Makes of each object what is wanted of it; None: all.
        """
        self._keep = keep
        self._client = client
        self._path = path
        self._params = params
        self._page_size = page_size
        self._accept = accept
        self._objects = msgspec.json.Decoder(kind)

    def of_stamps(self) -> "Listing[OnlyStamp]":
        """The same collection, of which only the versions matter."""
        return Listing(
            self._client,
            self._path,
            OnlyStamp,
            params=self._params,
            page_size=self._page_size,
            accept=METADATA,
        )

    def obj(self, raw: msgspec.Raw) -> T:
        """Return what is wanted of an object that the server sent.

        Raises:
            MalformedError: It is none of the kind.
        """
        obj = decoded(raw, self._objects, self._path)
        return obj if self._keep is None else self._keep(obj)

    async def read(self) -> tuple[dict[str, T], str]:
        """Return all objects by UID, and the version of the list.

        Raises:
            GoneError: The list expired between two pages; the next has larger ones.
            KubeError: The server refused or garbled a page.
        """
        found: dict[str, T] = {}

        def take(obj: T) -> None:
            found[uid_of(obj)] = obj

        version = await self.each(take)
        return found, version

    async def each(self, take: Callable[[T], None]) -> str:
        """Read all objects, page by page, and return the version of the list.

        Args:
            take: Gets each object; called on the loop, must not block.

        Raises:
            GoneError: The list expired between two pages; the next has larger ones.
            KubeError: The server refused or garbled a page.
        """
        params = {**self._params, "limit": str(self._page_size)}
        while True:
            try:
                page = await self._page(params)
            except GoneError:
                # The list's snapshot was compacted under us. Larger pages need less
                # time for the whole, so this ends.
                self._page_size = min(self._page_size * 4, LARGEST_PAGE)
                raise
            for raw in page.items or ():
                take(self.obj(raw))
            further = page.metadata.continue_
            if not further:
                return self._checked(page.metadata.resource_version)
            if further == params.get("continue"):
                raise MalformedError(
                    f"LIST {self._path}: expected another page, found the same again"
                )
            params = params | {"continue": further}

    async def _page(self, params: dict[str, str]) -> ObjectList:
        body = await self._client.request(
            "GET",
            self._path,
            params=params,
            accept=self._accept,
            timeout_s=_TIMEOUT_S,
        )
        return decoded(body, _PAGES, self._path)

    def _checked(self, version: str) -> str:
        if not version:
            found = "found no metadata.resourceVersion"
            raise MalformedError(f"LIST {self._path}: expected a version, {found}")
        return version


def decoded(
    raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[S]", path: str
) -> S:
    """Return what the server sent of a collection.

    Raises:
        MalformedError: It is not what was expected there.
    """
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        raise MalformedError(undecodable(path, error)) from error


def uid_of(obj: HasMeta) -> str:
    """Return by what an object is known: its UID, and where it has none its name."""
    return obj.metadata.uid or f"{obj.metadata.namespace}/{obj.metadata.name}"
