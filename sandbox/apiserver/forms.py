"""In which form a client wants its answer: as objects, as a table, or as metadata.

Source: apiserver v0.36.3, `pkg/endpoints/handlers/negotiation` and `response.go`.
"""

import dataclasses
from collections.abc import Mapping

from sandbox.apiserver import statuses

_GROUP = "meta.k8s.io"
_VERSIONS = ("v1", "v1beta1")
TABLE = "Table"
ONE_METADATA = "PartialObjectMetadata"
MANY_METADATA = "PartialObjectMetadataList"
_KINDS = (TABLE, ONE_METADATA, MANY_METADATA)
_JSON = ("application/json", "application/*", "*/*")
_INCLUDED = ("", "Metadata", "Object", "None")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What objects are turned into.

    Attributes:
        kind: `Table`, `PartialObjectMetadata` or `PartialObjectMetadataList`.
        version: Of `meta.k8s.io`.
        included: What the rows of a table bring of their objects: `Metadata`,
            `Object` or `None`.
    """

    kind: str
    version: str
    included: str = "Metadata"

    @property
    def api_version(self) -> str:
        """The `apiVersion` of the answer."""
        return f"{_GROUP}/{self.version}"


def asked(accept: str, query: Mapping[str, str]) -> Form | None:
    """Return the first form of an Accept header that there is; None for objects.

    Raises:
        StatusError: The options of a table are wrong.
    """
    for wish in accept.split(","):
        media_type, _, rest = wish.partition(";")
        if media_type.strip().lower() not in _JSON:
            continue
        pairs = (part.partition("=") for part in rest.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in pairs}
        kind = parameters.get("as")
        if kind is None:
            return None
        version = parameters.get("v", "")
        known = kind in _KINDS and version in _VERSIONS
        if known and parameters.get("g") == _GROUP:
            return Form(kind=kind, version=version, included=_included(kind, query))
    return None


def _included(kind: str, query: Mapping[str, str]) -> str:
    included = query.get("includeObject", "")
    if kind == TABLE and included not in _INCLUDED:
        raise statuses.bad_request(
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"\"{included}\": must be 'Metadata', 'Object', 'None', or empty"
        )
    return included or "Metadata"
