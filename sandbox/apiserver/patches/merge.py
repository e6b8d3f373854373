"""JSON merge patch: maps merge, null removes, all else replaces (RFC 7386).

A module of its own: each kind of patch has one, named after its specification.
"""

from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object


def apply(document: Object, patch: Any) -> Object:
    """Return `document` with the merge patch applied.

    Raises:
        StatusError: The patch is not a JSON object.
    """
    if not isinstance(patch, dict):
        raise statuses.bad_request("Invalid JSON Patch")
    return _merged(document, patch)


def _merged(target: Any, patch: Object) -> Object:
    result: Object = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key), value)
        else:
            result[key] = value
    return result
