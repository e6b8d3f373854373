"""The three kinds of patch: JSON merge patch, JSON patch, strategic merge patch.

Each is a pure function of a document and a patch; the document may be changed in
place, so callers give a copy. Server-side apply is not here.
"""

from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object
from sandbox.apiserver.patches import merge, operations, strategic

_KINDS = {
    "application/merge-patch+json": merge.apply,
    "application/json-patch+json": operations.apply,
}
_STRATEGIC = "application/strategic-merge-patch+json"

MEDIA_TYPES = (*_KINDS, _STRATEGIC)


def apply(media_type: str, document: Object, patch: Any, schema: Object) -> Object:
    """Return `document` with `patch` applied.

    Args:
        media_type: What kind of patch it is; one of `MEDIA_TYPES`.
        document: Ours to change.
        patch: The patch, as decoded from JSON.
        schema: Of the document's type.

    Raises:
        StatusError: The patch cannot be read (400) or does not apply (422).
    """
    if media_type == _STRATEGIC:
        return strategic.apply(document, patch, schema)
    kind = _KINDS.get(media_type)
    if kind is None:
        raise statuses.unsupported_media_type(MEDIA_TYPES)
    return kind(document, patch)
