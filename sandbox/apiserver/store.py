"""The objects, and the rules by which they change: pure and synchronous.

Every method either answers or raises a `StatusError` and changes nothing. What
changed is in `log`, in order. Time and uids come from the caller.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from sandbox.apiserver import (
    defaults,
    managers,
    patches,
    statuses,
    updates,
    validation,
)
from sandbox.apiserver.changes import Change, ChangeLog
from sandbox.apiserver.objects import (
    Entry,
    Key,
    Object,
    entry_of,
    key_of,
    metadata_of,
    without_nulls,
)
from sandbox.apiserver.openapi import strictness, types
from sandbox.apiserver.paths import Target
from sandbox.apiserver.resources import NAMESPACES, RESOURCES, Resource
from scheduler_core.wire.quantities import QuantityError
from service import clock

# Names are made of letters that spell no words; source: apimachinery `util/rand`.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_BASE = 63 - _SUFFIX_LENGTH
_NAME_TRIES = 8

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SERVER_METADATA = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What must hold of an object for a request to be about it; empty asks nothing."""

    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, document: Object) -> Self:
        """Return those that the metadata of a body, or its preconditions, state."""
        return cls(
            uid=document.get("uid") or "",
            resource_version=document.get("resourceVersion") or "",
        )


#: Any object will do.
ANYTHING = Preconditions()


class Store:
    """All objects of all resources, and their history."""

    def __init__(
        self, *, now_s: Callable[[], float], new_uid: Callable[[], str]
    ) -> None:
        """Start with the namespaces that every cluster has.

        Args:
            now_s: Seconds since 1970, for the timestamps in objects.
            new_uid: Gives a new UUID at each call.
        """
        self._now_s = now_s
        self._new_uid = new_uid
        self._entries: dict[Resource, dict[Key, Entry]] = {
            resource: {} for resource in RESOURCES
        }
        self.log = ChangeLog()
        self._rehearsing = False
        for name in _FIRST_NAMESPACES:
            self.create(Target(resource=NAMESPACES), {"metadata": {"name": name}})
        # A cluster has a past; nobody can watch from its beginning.
        self.log.compact()

    def now_s(self) -> float:
        """Return the time of the objects: seconds since 1970."""
        return self._now_s()

    def timestamp(self, later_s: float = 0) -> str:
        """Return the time in `later_s` seconds, as objects carry it."""
        return clock.rfc3339(self._now_s() + later_s)

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Let requests answer as ever, but change nothing meanwhile."""
        self._rehearsing = True
        try:
            yield
        finally:
            self._rehearsing = False

    def entries(self, resource: Resource) -> Mapping[Key, Entry]:
        """Return what exists now, not to be kept over a change."""
        return self._entries[resource]

    def read(self, target: Target) -> Entry:
        """Return the object that `target` names."""
        entry = self._entries[target.resource].get(target.key)
        if entry is None:
            raise statuses.not_found(target.resource, target.name)
        return entry

    def create(self, target: Target, body: Object, *, manager: str = "") -> Entry:
        """Add a new object to a collection.

        Args:
            target: The collection, or the name that a PUT creates.
            body: What the client sent; ours to change.
            manager: Who has sent it.
        """
        resource = target.resource
        if metadata_of(body).get("resourceVersion"):
            raise statuses.plain_failure(
                "resourceVersion should not be set on objects to be created"
            )
        document = self._prepared(resource, without_nulls(body), target.namespace)
        metadata = document["metadata"]
        for field in _SERVER_METADATA:
            metadata.pop(field, None)
        self._name(resource, metadata)
        metadata["uid"] = self._new_uid()
        metadata["creationTimestamp"] = self.timestamp()
        defaults.on_create(resource, document)
        if problems := validation.on_create(resource, document):
            raise statuses.invalid(
                resource.qualified_kind, metadata.get("name", ""), problems
            )
        if resource.namespaced:
            self._check_namespace(resource, *key_of(document))
        if key_of(document) in self._entries[resource]:
            raise statuses.already_exists(resource, metadata["name"])
        self._note_manager(resource, document, {}, manager)
        return self.commit(resource, document)

    def replace(
        self, target: Target, body: Object, *, manager: str = ""
    ) -> tuple[Entry, bool]:
        """Put `body` in the place of an object; say whether that created it."""
        resource = target.resource
        self._check_name(target, body)
        old = self._entries[resource].get(target.key)
        if old is None and resource.create_on_update and not target.subresource:
            return self.create(target, body, manager=manager), True
        entry = old or self.read(target)
        wanted = Preconditions(uid=metadata_of(body).get("uid", ""))
        check(resource, entry, wanted)
        return self._write(target, entry, without_nulls(body), manager), False

    def patch(
        self,
        target: Target,
        media_type: str,
        patch: Any,
        *,
        strict: bool = False,
        manager: str = "",
    ) -> tuple[Entry, list[str]]:
        """Change an object by a patch of one of the three kinds.

        Args:
            target: The object.
            media_type: Which kind of patch.
            patch: As decoded from JSON.
            strict: Refuse fields that the type does not have.
            manager: Who has sent it.

        Returns:
            The object, and the paths of such fields, which are not in it.
        """
        old = self.read(target)
        schema = types.of_kind(target.resource)
        patched = without_nulls(patches.apply(media_type, old.fresh(), patch, schema))
        error = self._type_error(target.resource, patched)
        unknown = [] if error else strictness.drop_unknown(patched, schema)
        if unknown and strict:
            error = strictness.error(unknown)
        if error:
            problem = statuses.Problem.invalid("patch", patch, error)
            raise statuses.invalid("", "", [problem])
        self._check_name(target, patched)
        return self._write(target, old, patched, manager), unknown

    def commit(
        self, resource: Resource, document: Object, before: Entry | None = None
    ) -> Entry:
        """Store a document that is known to be right; it is not ours any more."""
        return self._change(resource, document, before, removed=False)

    def remove(self, resource: Resource, entry: Entry) -> Entry:
        """Take an object away, and answer its last state."""
        return self._change(resource, entry.fresh(), entry, removed=True)

    def _change(
        self,
        resource: Resource,
        document: Object,
        before: Entry | None,
        *,
        removed: bool,
    ) -> Entry:
        entry = entry_of(document, self.log.revision + 1)
        if self._rehearsing:
            return entry
        key = key_of(document)
        if removed:
            del self._entries[resource][key]
        else:
            self._entries[resource][key] = entry
        self.log.append(
            Change(
                revision=entry.revision,
                resource=resource,
                key=key,
                before=before,
                after=entry,
                removed=removed,
            )
        )
        return entry

    def _prepared(self, resource: Resource, body: Object, namespace: str) -> Object:
        """Return `body` with defaults, in the namespace of the request."""
        if problem := self._type_error(resource, body):
            raise statuses.not_handled(resource, problem)
        strictness.drop_unknown(body, types.of_kind(resource))
        metadata = body.setdefault("metadata", {})
        if metadata.setdefault("namespace", namespace) != namespace:
            raise statuses.bad_request(
                "the namespace of the provided object does not match "
                "the namespace sent on the request"
            )
        if not namespace:
            del metadata["namespace"]
        try:
            defaults.apply(resource, body)
        except QuantityError as error:
            raise statuses.not_handled(resource, str(error)) from error
        return body

    def _type_error(self, resource: Resource, body: Object) -> str:
        name = types.name_of_kind(resource)
        return validation.type_error(body) or strictness.wrong_type(body, name)

    def _note_manager(
        self, resource: Resource, new: Object, old: Object, manager: str
    ) -> None:
        if resource.kind == "Node":
            managers.note(new, old, manager=manager, timestamp=self.timestamp())

    def _name(self, resource: Resource, metadata: Object) -> None:
        """Make a name from `generateName` when there is no name."""
        base = metadata.get("generateName")
        if metadata.get("name") or not base:
            return
        taken = self._entries[resource]
        for _ in range(_NAME_TRIES):
            metadata["name"] = base[:_LONGEST_BASE] + self._suffix()
            if (metadata.get("namespace", ""), metadata["name"]) not in taken:
                return

    def _suffix(self) -> str:
        number = int(self._new_uid().replace("-", ""), 16)
        letters = []
        for _ in range(_SUFFIX_LENGTH):
            number, place = divmod(number, len(_SUFFIX_LETTERS))
            letters.append(_SUFFIX_LETTERS[place])
        return "".join(letters)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self._entries[NAMESPACES].get(("", namespace))
        if found is None:
            raise statuses.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.document["metadata"]:
            raise statuses.forbidden(
                resource,
                name,
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated",
            )

    def _check_name(self, target: Target, body: Object) -> None:
        found = metadata_of(body).get("name", "")
        if not found:
            raise statuses.bad_request("name must be provided")
        if found != target.name:
            raise statuses.bad_request(
                f"the name of the object ({found}) does not match "
                f"the name on the URL ({target.name})"
            )

    def _write(
        self, target: Target, old: Entry, document: Object, manager: str
    ) -> Entry:
        """Store a new version, unless it says nothing new."""
        resource = target.resource
        document = self._prepared(resource, document, target.namespace)
        version = document["metadata"].get("resourceVersion", "")
        if not version and not resource.unconditional_update:
            problem = statuses.Problem.invalid(
                "metadata.resourceVersion", 0, "must be specified for an update"
            )
            raise statuses.invalid(resource.qualified, target.name, [problem])
        if version and version != str(old.revision):
            raise statuses.modified(resource, target.name)
        updates.carry_over(target, document, old.document)
        if problems := validation.on_update(resource, document, old.document):
            raise statuses.invalid(resource.qualified_kind, target.name, problems)
        document["metadata"]["resourceVersion"] = str(old.revision)
        self._note_manager(resource, document, old.document, manager)
        if document == old.document:
            return old
        entry = self.commit(resource, document, old)
        if updates.is_finished(document):
            return self.remove(resource, entry)
        return entry


def check(resource: Resource, entry: Entry, wanted: Preconditions) -> None:
    """Raise a conflict unless `entry` is the object that the caller means."""
    for field, value, found in differences(entry, wanted):
        raise statuses.conflict(
            resource,
            entry.document["metadata"]["name"],
            f"Precondition failed: {field} in precondition: {value}, "
            f"{field} in object meta: {found}",
        )


def differences(entry: Entry, wanted: Preconditions) -> Iterator[tuple[str, str, str]]:
    """Yield (field, its wanted value, its value) of each precondition that fails."""
    metadata = entry.document["metadata"]
    for field, value, found in (
        ("UID", wanted.uid, metadata["uid"]),
        ("ResourceVersion", wanted.resource_version, metadata["resourceVersion"]),
    ):
        if value and value != found:
            yield field, value, found
