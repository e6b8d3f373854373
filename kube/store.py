"""Cache of a followed collection, and its comparison with a list: the part without I/O.

A **comparison** finds cached objects that differ from the server's. A list shows the
collection at its version. When the watch has reached that version, every object of that
version or older must be cached as listed. Differences of such objects are errors. Newer
objects are ignored, and so are listed objects that the watch has deleted since.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from kube import resource_versions
from kube.pager import HasMeta, uid_of

T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Object whose cached version differs from the server's."""

    uid: str
    #: `namespace/name`, or the name alone without a namespace
    name: str
    #: version at the server; "" if the object does not exist there
    server_version: str
    #: version in the cache; "" if the object is not cached
    cached_version: str


class Collection(Generic[T]):
    """Cached objects of a collection, and the version that the cache has reached.

    Invariant: versions rise; the cache is the collection's state at `version`.
    """

    def __init__(self) -> None:
        """Start empty; a list is due."""
        self._objects: dict[str, T] = {}
        #: Version to watch from; "" when a list is due.
        self.version = ""
        #: Newest version of any list or event.
        self.newest = ""
        self._comparison: Comparison[T] | None = None

    def __iter__(self) -> Iterator[T]:
        """Iterate over the cached objects."""
        return iter(self._objects.values())

    def get(self, uid: str) -> T | None:
        """Return the cached object of that UID; None if there is none."""
        return self._objects.get(uid)

    def replace(
        self, listed_objects: dict[str, T], version: str
    ) -> tuple[list[T], list[T]]:
        """Replace the cache by a list; return deleted objects, and upserted ones."""
        cached_objects = self._objects
        deleted_objects = [
            obj for uid, obj in cached_objects.items() if uid not in listed_objects
        ]
        upserted_objects = [
            obj
            for uid, obj in listed_objects.items()
            if uid not in cached_objects
            or _version_of(cached_objects[uid]) != _version_of(obj)
        ]
        self._objects, self.version, self.newest = listed_objects, version, version
        if self._comparison is not None:
            self._comparison.is_valid = False  # the list has repaired all differences
        return deleted_objects, upserted_objects

    def put(self, obj: T) -> bool:
        """Cache an object of a watch; return False if that event came before."""
        if not self.advance(obj):
            return False
        self._objects[uid_of(obj)] = obj
        return True

    def drop(self, obj: T) -> bool:
        """Delete an object from the cache; return False if that event came before."""
        if not self.advance(obj):
            return False
        uid = uid_of(obj)
        if self._comparison is not None:
            self._comparison.deleted_versions[uid] = _version_of(obj)
        return self._objects.pop(uid, None) is not None

    def advance(self, obj: HasMeta) -> bool:
        """Move to the version of an object; return False if the cache has reached it.

        Versions rise within a watch. An event with a version that does not rise came
        before.
        """
        version = obj.metadata.resource_version
        if not version:
            return True
        if version == self.version or is_older(version, self.version):
            return False
        self.version = self.newest = version
        return True

    def has_reached(self, version: str) -> bool:
        """Return whether the cache has all changes up to `version`."""
        return bool(self.version) and (
            version == self.version or is_older(version, self.version)
        )

    def begin_comparison(self) -> "Comparison[T]":
        """Start and return a comparison; call it before its list is requested."""
        self._comparison = Comparison(self)
        return self._comparison

    def end_comparison(self, comparison: "Comparison[T]") -> None:
        """Stop the comparison, if it is the current one."""
        if self._comparison is comparison:
            self._comparison = None


class Comparison(Generic[T]):
    """Comparison of a list with the cache; stores only objects that differ."""

    def __init__(self, collection: Collection[T]) -> None:
        """Start with an empty list."""
        self._collection = collection
        #: UIDs of objects that were cached in the listed version
        self._matched_uids: set[str] = set()
        #: {uid: listed object} of objects that were not
        self._mismatched_objects: dict[str, HasMeta] = {}
        #: {uid: version of its deletion} of objects deleted since the list began
        self.deleted_versions: dict[str, str] = {}
        #: whether no other list has replaced the cache meanwhile
        self.is_valid = True

    def add_listed(self, listed_object: HasMeta) -> None:
        """Compare one object of the list with the cache."""
        uid = uid_of(listed_object)
        cached_object = self._collection.get(uid)
        if cached_object is not None and _version_of(cached_object) == _version_of(
            listed_object
        ):
            self._matched_uids.add(uid)
        else:
            self._mismatched_objects[uid] = listed_object

    def find_differences(self, version: str) -> list[Difference]:
        """Return differences of objects that are not newer than the list.

        Args:
            version: Version of the list; call when the collection has reached it.
        """
        results = [
            _difference(uid, listed_object, cached_object, listed_object)
            for uid, listed_object in self._mismatched_objects.items()
            if self._is_outdated(
                uid, cached_object := self._collection.get(uid), listed_object, version
            )
        ]
        for cached_object in self._collection:
            uid = uid_of(cached_object)
            is_listed = uid in self._matched_uids or uid in self._mismatched_objects
            if not is_listed and not is_older(version, _version_of(cached_object)):
                results.append(_difference(uid, None, cached_object, cached_object))
        return results

    def _is_outdated(
        self, uid: str, cached_object: T | None, listed_object: HasMeta, version: str
    ) -> bool:
        if cached_object is None:
            # A deletion below the listed version was of a namesake before it.
            deleted_version = self.deleted_versions.get(uid)
            return deleted_version is None or is_older(
                deleted_version, _version_of(listed_object)
            )
        is_newer = is_older(version, _version_of(cached_object))
        return not is_newer and _version_of(cached_object) != _version_of(listed_object)


def is_older(version: str, other_version: str) -> bool:
    """Return whether `version` is below `other_version`; False if not comparable."""
    number = resource_versions.parse(version)
    other_number = resource_versions.parse(other_version)
    return number is not None and other_number is not None and number < other_number


def _version_of(obj: HasMeta) -> str:
    return obj.metadata.resource_version


def _difference(
    uid: str,
    listed_object: HasMeta | None,
    cached_object: HasMeta | None,
    identity: HasMeta,
) -> Difference:
    meta = identity.metadata
    return Difference(
        uid=uid,
        name=f"{meta.namespace}/{meta.name}".lstrip("/"),
        server_version=_version_of(listed_object) if listed_object is not None else "",
        cached_version=_version_of(cached_object) if cached_object is not None else "",
    )
