"""What is known of a collection, and how far: the half of a list-watch without I/O.

A **comparison** says whether that is true: a list shows what was there at its version,
and a watch that has come so far has shown everything up to it. So once it has,
whatever of that version or an older one is known otherwise than listed is known
wrongly. What is newer says nothing; neither does what the list has and the watch has
since seen go.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from kube import resource_versions
from kube.pager import HasMeta, uid_of

T = TypeVar("T", bound=HasMeta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An object that is known otherwise than it is."""

    uid: str
    #: its namespace, where it has one, and its name
    name: str
    #: the version that is there; "": it is not
    expected: str
    #: the version that is known; "": none
    found: str


class Collection(Generic[T]):
    """The objects of a collection as far as they have been shown.

    Invariant: versions rise; what is known is what was shown up to `version`.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._objects: dict[str, T] = {}
        #: From where to watch; empty when a list is due.
        self.version = ""
        #: The newest version that was ever seen.
        self.newest = ""
        self._comparison: Comparison[T] | None = None

    def __iter__(self) -> Iterator[T]:
        """Go through what is there."""
        return iter(self._objects.values())

    def get(self, uid: str) -> T | None:
        """The object of that UID, if it is there."""
        return self._objects.get(uid)

    def replace(self, found: dict[str, T], version: str) -> tuple[list[T], list[T]]:
        """Take in a whole list; return what is gone, and what is new or has changed."""
        before = self._objects
        gone = [obj for uid, obj in before.items() if uid not in found]
        changed = [
            obj
            for uid, obj in found.items()
            if uid not in before or _version_of(before[uid]) != _version_of(obj)
        ]
        self._objects, self.version, self.newest = found, version, version
        if self._comparison is not None:
            self._comparison.is_valid = False  # what was wrong has been mended
        return gone, changed

    def put(self, obj: T) -> bool:
        """Take in what a watch shows; False: that was known already."""
        if not self.advance(obj):
            return False
        self._objects[uid_of(obj)] = obj
        return True

    def drop(self, obj: T) -> bool:
        """Take in that an object is gone; False: that was known already."""
        if not self.advance(obj):
            return False
        uid = uid_of(obj)
        if self._comparison is not None:
            self._comparison.gone.add(uid)
        return self._objects.pop(uid, None) is not None

    def advance(self, obj: HasMeta) -> bool:
        """Note that we have come as far as this object; False: we were there before.

        The events of a watch have rising versions, so one that does not rise is one
        that came already.
        """
        version = obj.metadata.resource_version
        if not version:
            return True
        if version == self.version or is_older(version, self.version):
            return False
        self.version = self.newest = version
        return True

    def has_come_to(self, version: str) -> bool:
        """Whether everything up to this version has been shown."""
        return bool(self.version) and (
            version == self.version or is_older(version, self.version)
        )

    def compare(self) -> "Comparison[T]":
        """Begin a comparison; to be called before the list that it is fed with."""
        self._comparison = Comparison(self)
        return self._comparison

    def leave(self, comparison: "Comparison[T]") -> None:
        """End a comparison."""
        if self._comparison is comparison:
            self._comparison = None


class Comparison(Generic[T]):
    """A list, held against what is known; it keeps only what does not agree."""

    def __init__(self, collection: Collection[T]) -> None:
        """Have seen nothing of the list."""
        self._collection = collection
        #: UIDs of what was known in the listed version
        self._equal: set[str] = set()
        #: {uid: what is listed otherwise}
        self._suspects: dict[str, HasMeta] = {}
        #: UIDs of what the watch has seen go since the list began
        self.gone: set[str] = set()
        #: no list has come between
        self.is_valid = True

    def see(self, listed: HasMeta) -> None:
        """Take in one object of the list."""
        uid = uid_of(listed)
        known = self._collection.get(uid)
        if known is not None and _version_of(known) == _version_of(listed):
            self._equal.add(uid)
        else:
            self._suspects[uid] = listed

    def differences(self, version: str) -> list[Difference]:
        """What is known wrongly; to be asked once the watch has come to `version`.

        Args:
            version: That of the list.
        """
        found = [
            _difference(uid, listed, known, listed)
            for uid, listed in self._suspects.items()
            if self._is_wrong(uid, known := self._collection.get(uid), listed, version)
        ]
        for known in self._collection:
            uid = uid_of(known)
            is_listed = uid in self._equal or uid in self._suspects
            if not is_listed and not is_older(version, _version_of(known)):
                found.append(_difference(uid, None, known, known))
        return found

    def _is_wrong(
        self, uid: str, known: T | None, listed: HasMeta, version: str
    ) -> bool:
        if known is None:
            return uid not in self.gone
        is_newer = is_older(version, _version_of(known))
        return not is_newer and _version_of(known) != _version_of(listed)


def is_older(version: str, than: str) -> bool:
    """Compare two resource versions; those that are no numbers are not comparable."""
    one, other = resource_versions.number(version), resource_versions.number(than)
    return one is not None and other is not None and one < other


def _version_of(obj: HasMeta) -> str:
    return obj.metadata.resource_version


def _difference(
    uid: str, listed: HasMeta | None, known: HasMeta | None, shown: HasMeta
) -> Difference:
    meta = shown.metadata
    return Difference(
        uid=uid,
        name=f"{meta.namespace}/{meta.name}".lstrip("/"),
        expected=_version_of(listed) if listed is not None else "",
        found=_version_of(known) if known is not None else "",
    )
