"""Narrowing of parsed JSON: a value of the wanted type, or an error with its path."""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from scheduler_core.wire.annotations import WireError


def parse_json(text: str, path: str) -> object:
    """The JSON value that `text` is.

    Raises:
        WireError: It is not JSON.
    """
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(path, expected=f"JSON ({error})", found=text) from None
    return value


def parse_document(text: str, path: str) -> object:
    """As `parse_json`, of a text that people write: no key may stand there twice.

    Raises:
        WireError: It is not JSON, or an object has a key twice, of which JSON would
            drop one in silence.
    """
    try:
        value: object = json.loads(text, object_pairs_hook=partial(_once, path=path))
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError(path, expected=f"JSON ({error})", found=text) from None
    return value


def _once(pairs: Sequence[tuple[str, object]], *, path: str) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise WireError(path, expected="each key of an object once", found=twice)
    return found


def as_object(value: object, path: str) -> Mapping[str, object]:
    """`value`, which must be a JSON object."""
    if isinstance(value, dict):
        return value
    raise WireError(path, expected="an object", found=value)


def as_array(value: object, path: str) -> Sequence[object]:
    """`value`, which must be a JSON array."""
    if isinstance(value, list):
        return value
    raise WireError(path, expected="a list", found=value)


def as_string(value: object, path: str) -> str:
    """`value`, which must be a JSON string."""
    if isinstance(value, str):
        return value
    raise WireError(path, expected="a text", found=value)


def as_name(value: object, path: str) -> str:
    """`value`, which must be a JSON string that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise WireError(path, expected="a name", found=value)


def as_integer(value: object, path: str) -> int:
    """`value`, which must be a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise WireError(path, expected="a whole number", found=value)


def as_boolean(value: object, path: str) -> bool:
    """`value`, which must be true or false."""
    if isinstance(value, bool):
        return value
    raise WireError(path, expected="true or false", found=value)
