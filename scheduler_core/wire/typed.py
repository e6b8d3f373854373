"""Narrowing of parsed JSON: a value of the wanted type, or an error with its path."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from scheduler_core.wire.annotations import WireError

#: Whole numbers have at most so many bits, their sign included: Go's int64.
_BITS = 64

_Paired: TypeAlias = Callable[[Sequence[tuple[str, object]]], dict[str, object]]


def parse_json(text: str, path: str) -> object:
    """The JSON value that `text` is.

    Raises:
        WireError: It is not JSON, too deep to be read, or has half a character.
    """
    return _parsed(text, path, None)


def parse_document(text: str, path: str) -> object:
    """As `parse_json`, of a text that people write: no key may stand there twice.

    Raises:
        WireError: It is not JSON, or an object has a key twice, of which JSON would
            drop one in silence.
    """
    return _parsed(text, path, partial(_once, path=path))


def _parsed(text: str, path: str, paired: _Paired | None) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=paired)
        # JSON can escape half a character, which nobody could write out again
        if not text.isascii() or "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except WireError:
        raise
    except UnicodeEncodeError as error:
        found = error.object[error.start : error.end]
        raise WireError(path, expected="whole characters", found=found) from None
    except RecursionError:
        raise WireError(path, expected="JSON of fewer levels", found=text) from None
    except ValueError as error:
        raise WireError(path, expected=f"JSON ({error})", found=text) from None
    return value


def _once(pairs: Sequence[tuple[str, object]], *, path: str) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if _is_known(key, seen))
        raise WireError(path, expected="each key of an object once", found=twice)
    return found


def _is_known(key: str, seen: set[str]) -> bool:
    known = key in seen
    seen.add(key)
    return known


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
    """`value`, which must be a whole number of at most 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(path, expected="a whole number", found=value)
    if value.bit_length() >= _BITS:
        raise WireError(path, expected=f"a number of at most {_BITS} bits", found=value)
    return value


def as_boolean(value: object, path: str) -> bool:
    """`value`, which must be true or false."""
    if isinstance(value, bool):
        return value
    raise WireError(path, expected="true or false", found=value)
