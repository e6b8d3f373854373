"""The documents of `/openapi/v3`: for each group its paths and its types.

What kubectl reads in them: whether a field is known (`create`, `apply`), what it means
(`explain`), how its lists merge (`apply`), and that the server validates by itself
(the parameter `fieldValidation` of each PATCH).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence

from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import types
from sandbox.apiserver.resources import Resource
from service import openapi

#: {verb: method}
_METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
}
#: Verbs of a whole collection.
_OF_ALL = frozenset({"list", "create"})
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
    return openapi.document(
        "3.0.0",
        {"title": "Kubernetes", "version": version},
        dict(_paths(rows, prefix)),
        openapi.with_referred(map(types.name_of_kind, rows), types.definitions()),
    )


def _hash(described: Object) -> str:
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha512(text.encode()).hexdigest().upper()


def _paths(rows: Sequence[Resource], prefix: str) -> Iterable[tuple[str, Object]]:
    for row in rows:
        scope = "/namespaces/{namespace}" if row.namespaced else ""
        whole = f"{prefix}{scope}/{row.plural}"
        yield whole, _operations(row, only=_OF_ALL)
        yield f"{whole}/{{name}}", _operations(row, only=_METHODS.keys() - _OF_ALL)


def _operations(row: Resource, *, only: Iterable[str]) -> Object:
    return {
        _METHODS[verb]: _operation(row, verb)
        for verb in sorted(only)
        if verb in row.verbs
    }


def _operation(row: Resource, verb: str) -> Object:
    schema = openapi.reference(types.name_of_kind(row))
    described: Object = {
        "operationId": f"{verb}{row.kind}",
        "responses": {"200": openapi.answer("OK", schema)},
        "x-kubernetes-action": verb if verb == "list" else _METHODS[verb],
        "x-kubernetes-group-version-kind": {
            "group": row.group,
            "version": row.version,
            "kind": row.kind,
        },
    }
    if verb in _VALIDATING:
        described["parameters"] = [
            openapi.parameter(
                "fieldValidation",
                "query",
                {"type": "string", "uniqueItems": True},
                "Ignore, Warn or Strict: what to do about fields that the type does "
                "not have.",
            )
        ]
    return described
