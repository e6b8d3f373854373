"""The documents of `/openapi/v3`: for each group its paths and its types.

What kubectl reads in them: whether a field is known (`create`, `apply`), what it means
(`explain`), how its lists merge (`apply`), and that the server validates by itself
(the parameter `fieldValidation` of each PATCH).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import types
from sandbox.apiserver.resources import Resource

_ACTIONS = {
    "get": "get",
    "list": "list",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
}
#: Verbs of a whole collection.
_OF_ALL = frozenset({"list", "create"})
_ACTION_NAMES = {"create": "post", "update": "put"}
_VALIDATING = frozenset({"create", "update", "patch"})


def index(prefixes: Iterable[str], documents: dict[str, Object]) -> Object:
    """Return the document that names all others.

    Args:
        prefixes: `/api/v1` …
        documents: {prefix: its document}; a client keeps one until its hash changes.
    """
    return {
        "paths": {
            prefix[1:]: {
                "serverRelativeURL": f"/openapi/v3{prefix}"
                f"?hash={_hash(documents[prefix])}"
            }
            for prefix in prefixes
        }
    }


def document(rows: Sequence[Resource], prefix: str, version: str) -> Object:
    """Return what is served below a prefix.

    Args:
        rows: The resources of one group.
        prefix: Of their paths.
        version: Of the server.
    """
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version},
        "paths": dict(_paths(rows, prefix)),
        "components": {"schemas": _schemas(rows)},
    }


def _hash(described: Object) -> str:
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha512(text.encode()).hexdigest().upper()


def _paths(rows: Sequence[Resource], prefix: str) -> Iterable[tuple[str, Object]]:
    for row in rows:
        scope = "/namespaces/{namespace}" if row.namespaced else ""
        whole = f"{prefix}{scope}/{row.plural}"
        yield whole, _operations(row, only=_OF_ALL)
        yield f"{whole}/{{name}}", _operations(row, only=_ACTIONS.keys() - _OF_ALL)


def _operations(row: Resource, *, only: Iterable[str]) -> Object:
    return {
        _method(verb): _operation(row, verb)
        for verb in sorted(only)
        if verb in row.verbs
    }


def _method(verb: str) -> str:
    return "get" if verb == "list" else _ACTIONS[verb]


def _operation(row: Resource, verb: str) -> Object:
    reference = {"$ref": f"#/components/schemas/{types.name_of_kind(row)}"}
    content = {"application/json": {"schema": reference}}
    described: Object = {
        "operationId": f"{verb}{row.kind}",
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": _ACTION_NAMES.get(verb, verb),
        "x-kubernetes-group-version-kind": {
            "group": row.group,
            "version": row.version,
            "kind": row.kind,
        },
    }
    if verb in _VALIDATING:
        described["parameters"] = [
            {
                "name": "fieldValidation",
                "in": "query",
                "description": "Ignore, Warn or Strict: what to do about fields that "
                "the type does not have.",
                "schema": {"type": "string", "uniqueItems": True},
            }
        ]
    return described


def _schemas(rows: Iterable[Resource]) -> dict[str, Object]:
    found: dict[str, Object] = {}
    waiting = [types.name_of_kind(row) for row in rows]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = types.definitions()[name]
            waiting += mentioned(found[name])
    return dict(sorted(found.items()))


def mentioned(value: Any) -> Iterable[str]:
    """Yield the names of the schemas that a value refers to."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield types.name_of(value["$ref"])
        for member in value.values():
            yield from mentioned(member)
    elif isinstance(value, list):
        for member in value:
            yield from mentioned(member)
