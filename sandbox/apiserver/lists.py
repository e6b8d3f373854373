"""Listing a collection: selected, sorted by name, and in pages of one snapshot.

A page after the first shows the same moment as the first: the past is rebuilt from
the log, or the answer is 410 when the log does not reach back.

Source: apiserver v0.36.3, `pkg/storage/continue.go`, `pkg/storage/etcd3/errors.go`.
"""

import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping

from sandbox.apiserver import selectors, statuses
from sandbox.apiserver.changes import CompactedError
from sandbox.apiserver.objects import Entry, Key, Object
from sandbox.apiserver.resources import Resource
from sandbox.apiserver.store import Store

_TOO_OLD = "The resourceVersion for the provided list is too old."
_PAGE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, or use the continue "
    "token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may "
    "show up in the list."
)
_PAGE_FORMAT = "meta.k8s.io/v1"
#: As a token's revision: go on in the present.
_LATEST = -1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list.

    Attributes:
        remaining: How many are still to come; None when nobody counted.
    """

    entries: list[Entry]
    revision: int
    next_token: str = ""
    remaining: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which objects of a collection are wanted.

    Attributes:
        namespace: Empty for all namespaces.
        selected: By labels and fields.
    """

    resource: Resource
    namespace: str = ""
    selected: selectors.Predicate = selectors.everything

    def holds(self, entry: Entry, key: Key) -> bool:
        """Say whether the object is wanted."""
        return self.namespace in {"", key[0]} and self.selected(entry.document)


def page(store: Store, choice: Choice, query: Mapping[str, str]) -> Page:
    """Return the page that `limit`, `continue` and `resourceVersion` ask for."""
    limit = number(query, "limit")
    token = query.get("continue", "")
    after, revision = _decoded(token) if token else (None, _revision(store, query))
    everything = _snapshot(store, choice.resource, revision, after)
    keys = sorted(
        key
        for key, entry in everything.items()
        if (after is None or key > after) and choice.holds(entry, key)
    )
    shown = revision if revision > 0 else store.log.revision
    if query.get("resourceVersion") == "0" and not token:
        limit = 0  # answered from the watch cache, which does not page
    if not limit or len(keys) <= limit:
        return Page(entries=[everything[key] for key in keys], revision=shown)
    unselected = choice.selected is selectors.everything
    return Page(
        entries=[everything[key] for key in keys[:limit]],
        revision=shown,
        next_token=_encoded(keys[limit - 1], shown),
        remaining=len(keys) - limit if unselected else None,
    )


def metadata_of_page(listed: Page) -> Object:
    """Return the metadata of a list that is this page."""
    metadata: Object = {"resourceVersion": str(listed.revision)}
    if listed.next_token:
        metadata["continue"] = listed.next_token
    if listed.remaining is not None:
        metadata["remainingItemCount"] = listed.remaining
    return metadata


def render(resource: Resource, listed: Page) -> bytes:
    """Return the page as the JSON of a list object."""
    head = {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata_of_page(listed),
    }
    # Each object is serialised already; only the frame around them is new.
    opened = json.dumps(head, separators=(",", ":")).removesuffix("}").encode()
    items = b",".join(entry.raw for entry in listed.entries)
    return b'%b,"items":[%b]}' % (opened, items)


def number(query: Mapping[str, str], name: str) -> int:
    """Return a whole number of the query, 0 when it is absent."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise statuses.bad_request(
            f'strconv.ParseInt: parsing "{text}": invalid syntax ({name})'
        )
    return int(text)


def _revision(store: Store, query: Mapping[str, str]) -> int:
    """Return the revision to show, 0 for the present."""
    asked = number(query, "resourceVersion")
    if asked > store.log.revision:
        raise statuses.too_large_resource_version(asked, store.log.revision)
    match = query.get("resourceVersionMatch", "")
    exact = match == "Exact" or (not match and number(query, "limit") > 0)
    return asked if exact else 0


def _snapshot(
    store: Store, resource: Resource, revision: int, after: Key | None
) -> Mapping[Key, Entry]:
    """Return what existed at `revision` (0 or less: what exists now)."""
    if revision <= 0:
        return store.entries(resource)
    try:
        changes = store.log.since(revision)
    except CompactedError as error:
        if after is None:
            raise statuses.expired(_TOO_OLD) from error
        raise statuses.expired(_PAGE_TOO_OLD, _encoded(after, _LATEST)) from error
    past = dict(store.entries(resource))
    for change in reversed(changes):
        if change.resource is not resource:
            continue
        if change.before is None:
            past.pop(change.key, None)
        else:
            past[change.key] = change.before
    return past


def _encoded(last: Key, revision: int) -> str:
    token = {"v": _PAGE_FORMAT, "rv": revision, "start": f"{last[0]}/{last[1]}\0"}
    raw = json.dumps(token, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(token: str) -> tuple[Key, int]:
    try:
        padded = token + "=" * (-len(token) % 4)
        fields = json.loads(base64.urlsafe_b64decode(padded))
        namespace, _, name = fields["start"].removesuffix("\0").partition("/")
        revision = int(fields["rv"])
    except (binascii.Error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise statuses.bad_request("continue key is not valid") from error
    if fields.get("v") != _PAGE_FORMAT or revision == 0:
        raise statuses.bad_request(
            "continue key is not valid: incorrect encoded start resourceVersion "
            "(version meta.k8s.io/v1)"
        )
    return (namespace, name), revision
