"""Which fields of a body its type does not have, and which have the wrong type.

Source: apimachinery v0.36.3, `pkg/runtime/serializer/json` (strict decoding), and the
texts of Go's `encoding/json`.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import types
from service import openapi

#: {type: its name in Go's messages}
GO_KINDS: dict[type, str] = {
    bool: "bool",
    dict: "object",
    list: "array",
    int: "number",
    float: "number",
}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A body that has been decoded.

    Attributes:
        document: The value.
        repeated: Paths of members that stand in an object twice; the last one counts.
    """

    document: Any
    repeated: list[str]


class _Members(dict[str, Any]):
    """A JSON object that remembers which of its members stood there twice."""

    repeated: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = _Members(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = (name for name in found if names.count(name) > 1)
        found.repeated = tuple(repeated)
    return found


def decoded(raw: bytes) -> Body:
    """Decode JSON, and note what stands in it twice.

    Raises:
        ValueError: It is no JSON.
    """
    document = json.loads(raw, object_pairs_hook=_members)
    return Body(document, list(_repeated(document, "")))


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Members):
        for name in value.repeated:
            yield _below(path, name)
        for name, member in value.items():
            yield from _repeated(member, _below(path, name))
    elif isinstance(value, list):
        for place, member in enumerate(value):
            yield from _repeated(member, f"{path}[{place}]")


def error(unknown: Iterable[str], repeated: Iterable[str] = ()) -> str:
    """Return what is said of a body with such fields where they are refused."""
    return f"strict decoding error: {', '.join(complaints(unknown, repeated))}"


def complaints(unknown: Iterable[str], repeated: Iterable[str] = ()) -> list[str]:
    """Return what is said of each such field."""
    return [
        *(f'unknown field "{path}"' for path in unknown),
        *(f'duplicate field "{path}"' for path in repeated),
    ]


def drop_unknown(document: Any, schema: Object, path: str = "") -> list[str]:
    """Take out of a document what its type does not have; return the paths.

    Args:
        document: Changed in place.
        schema: Of its type.
        path: Where it stands in the whole; empty for the whole.
    """
    gone: list[str] = []
    whole = types.resolved(schema)
    if isinstance(document, dict):
        properties = whole.get("properties")
        for name in list(document):
            if properties is not None and name not in properties:
                del document[name]
                gone.append(_below(path, name))
            else:
                member = types.field(whole, name)
                gone += drop_unknown(document[name], member, _below(path, name))
    elif isinstance(document, list):
        for place, member in enumerate(document):
            items = whole.get("items", types.UNKNOWN)
            gone += drop_unknown(member, items, f"{path}[{place}]")
    return gone


def wrong_type(document: Any, name: str) -> str:
    """Return what a typed decoder would say of the first value of a wrong type.

    Args:
        document: The object.
        name: Of its schema.

    Returns:
        "" if nothing is wrong.
    """
    schema = openapi.reference(name)
    return next(_wrong(document, schema, "", ""), "")


def _wrong(value: Any, schema: Object, owner: str, path: str) -> Iterator[str]:
    """Go through a value; `owner` is the Go type whose field it is."""
    whole = types.resolved(schema)
    if value is None:
        return
    expected = _PYTHON_TYPES.get(whole.get("type", ""))
    if expected is not None and not _is(value, expected):
        yield (
            f"json: cannot unmarshal {GO_KINDS.get(type(value), 'string')} into Go "
            f"struct field {owner}.{path} of type {_go_type(schema)}"
        )
    elif isinstance(value, dict):
        inner = _short(schema) or owner
        for name, member in value.items():
            field = types.field(whole, name)
            yield from _wrong(member, field, inner, _below(path, name))
    elif isinstance(value, list):
        for member in value:
            yield from _wrong(member, whole.get("items", types.UNKNOWN), owner, path)


def _is(value: Any, expected: tuple[type, ...]) -> bool:
    # To Python a boolean is a number.
    return isinstance(value, expected) and (
        not isinstance(value, bool) or bool in expected
    )


def _short(schema: Object) -> str:
    """Return the Go name of a type that a schema refers to: `PodSpec`."""
    return types.name_of(schema).rpartition(".")[2]


def _go_type(schema: Object) -> str:
    whole = types.resolved(schema)
    match whole.get("type"):
        case "array":
            return f"[]{_go_type(whole.get('items', types.UNKNOWN))}"
        case "object" if "additionalProperties" in whole:
            return f"map[string]{_go_type(whole['additionalProperties'])}"
        case "object":
            return f"v1.{_short(schema)}"
        case other:
            plain = {"boolean": "bool", "integer": whole.get("format", "int64")}
            return str(plain.get(other or "", other))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
