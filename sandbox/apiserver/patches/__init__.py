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
    "application/strategic-merge-patch+json": strategic.apply,
}

MEDIA_TYPES = tuple(_KINDS)


def apply(media_type: str, document: Object, patch: Any) -> Object:
    """Return `document` with `patch` applied.

    Args:
        media_type: What kind of patch it is; one of `MEDIA_TYPES`.
        document: Ours to change.
        patch: The patch, as decoded from JSON.

    Raises:
        StatusError: The patch cannot be read (400) or does not apply (422).
    """
    kind = _KINDS.get(media_type)
    if kind is None:
        raise statuses.unsupported_media_type(MEDIA_TYPES)
    return kind(document, patch)
