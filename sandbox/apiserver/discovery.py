"""What the server says about itself, so that kubectl finds its way.

The OpenAPI document is a skeleton: enough for kubectl to learn that the server takes
`fieldValidation`, so that `kubectl create -f` works without a flag. It describes no
schemas.
"""

from collections.abc import Iterable
from typing import Any

from sandbox.apiserver.objects import Object
from sandbox.apiserver.resources import RESOURCES, Resource

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}

_HEALTH = ("/healthz", "/livez", "/readyz")


def answer(path: str) -> Object | str | None:
    """Return the document (or the text) at a path, None when there is none."""
    if path in _HEALTH:
        return "ok"
    return _DOCUMENTS.get(path.rstrip("/") or "/")


def _api_resource(row: Resource) -> Object:
    return {
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
        "shortNames": list(row.short_names),
    }


def _subresources(row: Resource) -> Iterable[Object]:
    if row.has_status:
        yield {
            "name": f"{row.plural}/status",
            "singularName": "",
            "namespaced": row.namespaced,
            "kind": row.kind,
            "verbs": ["get", "patch", "update"],
        }
    for name, kind in row.subresources:
        yield {
            "name": f"{row.plural}/{name}",
            "singularName": "",
            "namespaced": row.namespaced,
            "kind": kind,
            "verbs": ["create"],
        }


def _resource_list(group_version: str, rows: Iterable[Resource]) -> Object:
    listed = []
    for row in rows:
        listed += [_api_resource(row), *_subresources(row)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": [version],
        "preferredVersion": version,
    }


def _schema(rows: Iterable[Resource], prefix: str) -> Object:
    parameters = [{"name": "fieldValidation", "in": "query"}]
    paths: dict[str, Any] = {}
    for row in rows:
        scope = "/namespaces/{namespace}" if row.namespaced else ""
        paths[f"{prefix}{scope}/{row.plural}/{{name}}"] = {
            "patch": {
                "parameters": parameters,
                "responses": {},
                "x-kubernetes-group-version-kind": {
                    "group": row.group,
                    "version": row.version,
                    "kind": row.kind,
                },
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }


def _documents() -> dict[str, Object]:
    groups = sorted({row.group for row in RESOURCES if row.group})
    prefixes = {"": "/api/v1"} | {group: f"/apis/{group}/v1" for group in groups}
    documents: dict[str, Object] = {
        "/": {"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]},
        "/version": dict(VERSION),
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name) for name in groups],
        },
        "/openapi/v3": {
            "paths": {
                prefix[1:]: {"serverRelativeURL": f"/openapi/v3{prefix}"}
                for prefix in prefixes.values()
            }
        },
    }
    for group, prefix in prefixes.items():
        rows = [row for row in RESOURCES if row.group == group]
        documents[prefix] = _resource_list(f"{group}/v1" if group else "v1", rows)
        documents[f"/openapi/v3{prefix}"] = _schema(rows, prefix)
        if group:
            documents[f"/apis/{group}"] = _group(group)
    return documents


_DOCUMENTS = _documents()
