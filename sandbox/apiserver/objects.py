"""What an API object is here: a JSON document that nobody changes once stored.

The bytes are kept beside the document, so that each version of an object is
serialised once, however many lists and watches send it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

#: A JSON object. Its values are whatever clients sent: hence `Any`.
Object: TypeAlias = dict[str, Any]

#: (namespace, "" for cluster-scoped; name)
Key: TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One stored version of an object.

    Attributes:
        document: The object. Read only: change a copy (`fresh`).
        raw: The same as JSON.
        revision: Its resource version, as a number.
    """

    document: Object
    raw: bytes
    revision: int

    def fresh(self) -> Object:
        """Return a deep copy that the caller may change."""
        copy: Object = json.loads(self.raw)
        return copy


def entry_of(document: Object, revision: int) -> Entry:
    """Store `document` as version `revision`; it must not be changed afterwards."""
    document["metadata"]["resourceVersion"] = str(revision)
    raw = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return Entry(document, raw.encode(), revision)


def metadata_of(document: Mapping[str, Any]) -> Object:
    """Return the metadata of `document`, empty when it has none."""
    metadata: Object = document.get("metadata") or {}
    return metadata


def key_of(document: Mapping[str, Any]) -> Key:
    """Return namespace and name of `document`."""
    metadata = metadata_of(document)
    return metadata.get("namespace", ""), metadata.get("name", "")


def without_nulls(value: Any) -> Any:
    """Drop every null member, as decoding into a typed object does."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Say whether the first condition of a kind in a status is true."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return bool(condition.get("status") == "True")
    return False


def containers_of(pod: Mapping[str, Any]) -> Iterator[tuple[str, Object]]:
    """Yield each container of a pod with its field path."""
    spec = pod.get("spec") or {}
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container
