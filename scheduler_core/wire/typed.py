"""Typed reading of JSON: a value of the expected type, or an error with its path."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from scheduler_core.wire.annotations import WireError

T = TypeVar("T")

#: number of bits of an integer, its sign included: Go's int64
_BITS = 64

_ObjectHook: TypeAlias = Callable[[Sequence[tuple[str, object]]], dict[str, object]]


def parse_json(text: str, path: str) -> object:
    """Parse JSON of any type.

    Raises:
        WireError: Not JSON, too deep, or with half a character.
    """
    return _load_json(text, path, None)


def parse_document(text: str, path: str) -> object:
    """Parse JSON that people write, in which no object may repeat a key.

    Raises:
        WireError: As `parse_json`, or an object repeats a key. Python's parser would
            drop one of the two values silently.
    """
    return _load_json(text, path, partial(_reject_duplicates, path=path))


def _load_json(text: str, path: str, object_hook: _ObjectHook | None) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=object_hook)
        # JSON can escape half a character, which cannot be encoded again.
        if not text.isascii() or "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except WireError:
        raise
    except UnicodeEncodeError as error:
        half_character = error.object[error.start : error.end]
        raise WireError(
            path, expected="whole characters", found=half_character
        ) from None
    except RecursionError:
        raise WireError(path, expected="JSON of fewer levels", found=text) from None
    except ValueError as error:
        raise WireError(path, expected=f"JSON ({error})", found=text) from None
    return value


def _reject_duplicates(
    pairs: Sequence[tuple[str, object]], *, path: str
) -> dict[str, object]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys: set[str] = set()
        repeated = next(key for key, _ in pairs if _is_repeated(key, keys))
        raise WireError(path, expected="each key of an object once", found=repeated)
    return document


def _is_repeated(key: str, keys: set[str]) -> bool:
    is_repeated = key in keys
    keys.add(key)
    return is_repeated


def _as(kind: type[T], expected: str) -> Callable[[object, str], T]:
    """Return the function that returns a value of a type, given its path."""

    def narrow(value: object, path: str) -> T:
        if isinstance(value, kind):
            return value
        raise WireError(path, expected=expected, found=value)

    return narrow


as_object: Callable[[object, str], Mapping[str, object]] = _as(dict, "an object")
as_array: Callable[[object, str], Sequence[object]] = _as(list, "a list")
as_string = _as(str, "a text")
as_boolean = _as(bool, "true or false")


def as_name(value: object, path: str) -> str:
    """Return `value`, which must be a JSON string that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise WireError(path, expected="a name", found=value)


def as_integer(value: object, path: str) -> int:
    """Return `value`, which must be a whole number of at most 64 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(path, expected="a whole number", found=value)
    if value.bit_length() >= _BITS:
        raise WireError(path, expected=f"a number of at most {_BITS} bits", found=value)
    return value
