"""JSON patch: a list of operations on paths (RFC 6902)."""

import copy
from collections.abc import Sequence
from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object


class _PatchError(Exception):
    """An operation does not apply to the document."""


def apply(document: Object, patch: Any) -> Object:
    """Return `document` with all operations applied, in order.

    Raises:
        StatusError: The patch is no list of operations (400), or one of them does
            not apply, a failed `test` included (422).
    """
    if not isinstance(patch, list) or not all(isinstance(op, dict) for op in patch):
        raise statuses.bad_request("a JSON patch must be a list of operations")
    root: Object = {"": document}
    try:
        for operation in patch:
            _apply_one(root, operation)
    except _PatchError as error:
        raise statuses.unprocessable(
            "the server rejected our request due to an error in our request"
        ) from error
    result = root[""]
    if not isinstance(result, dict):
        raise statuses.bad_request("the patched document is not an object")
    return result


def _apply_one(root: Object, operation: Object) -> None:
    path = _steps(operation.get("path"))
    match operation.get("op"):
        case "add":
            _add(root, path, _value(operation))
        case "replace":
            _replace(root, path, _value(operation))
        case "remove":
            _take(root, path)
        case "move":
            _add(root, path, _take(root, _steps(operation.get("from"))))
        case "copy":
            source = _read(root, _steps(operation.get("from")))
            _add(root, path, copy.deepcopy(source))
        case "test":
            _test(root, path, operation.get("value"))
        case other:
            raise _PatchError(f"unexpected kind: {other}")


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise _PatchError(f"not a path: {pointer!r}")
    # The document sits under the empty name of a root, so that it has a parent too.
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _value(operation: Object) -> Any:
    if "value" not in operation:
        raise _PatchError("an operation lacks its value")
    return copy.deepcopy(operation["value"])


def _read(root: Object, path: Sequence[str]) -> Any:
    value: Any = root
    for step in path:
        value = value[_position(value, step)]
    return value


def _position(container: Any, step: str) -> Any:
    """Return the existing key or index that `step` names."""
    if isinstance(container, dict):
        if step in container:
            return step
    elif isinstance(container, list) and step in map(str, range(len(container))):
        return int(step)
    raise _PatchError(f"no such path: {step!r}")


def _add(root: Object, path: Sequence[str], value: Any) -> None:
    parent, last = _read(root, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and last == "-":
        parent.append(value)
    elif isinstance(parent, list) and last.isdecimal() and int(last) <= len(parent):
        parent.insert(int(last), value)
    else:
        raise _PatchError(f"cannot add at {last!r}")


def _replace(root: Object, path: Sequence[str], value: Any) -> None:
    parent = _read(root, path[:-1])
    if isinstance(parent, dict):
        # Even when it is missing: the real server's library is that lenient.
        parent[path[-1]] = value
    else:
        parent[_position(parent, path[-1])] = value


def _take(root: Object, path: Sequence[str]) -> Any:
    parent = _read(root, path[:-1])
    return parent.pop(_position(parent, path[-1]))


def _test(root: Object, path: Sequence[str], wanted: Any) -> None:
    # A missing member equals null, as in the library that the real server uses.
    try:
        found = _read(root, path)
    except _PatchError:
        found = None
    if found != wanted:
        raise _PatchError(f"testing value {path} failed")
