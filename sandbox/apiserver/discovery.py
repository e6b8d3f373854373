"""What the server says about itself, so that kubectl finds its way.

The types of all objects are in the documents of `/openapi/v3` (`openapi.documents`).
"""

import functools
from collections.abc import Iterable

from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import documents as openapi
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
    return _documents().get(path.rstrip("/") or "/")


def _resource(row: Resource, name: str, kind: str, *verbs: str) -> Object:
    return {
        "name": name,
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }


def _resource_list(group_version: str, rows: Iterable[Resource]) -> Object:
    listed = []
    for row in rows:
        names = {"singularName": row.singular, "shortNames": list(row.short_names)}
        more = {"categories": list(row.categories)} if row.categories else {}
        listed.append(_resource(row, row.plural, row.kind, *row.verbs) | names | more)
        if row.has_status:
            verbs = ("get", "patch", "update")
            listed.append(_resource(row, f"{row.plural}/status", row.kind, *verbs))
        listed += [
            _resource(row, f"{row.plural}/{name}", kind, "create")
            for name, kind in row.subresources
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }


def _group(name: str, version_name: str) -> Object:
    version = {"groupVersion": f"{name}/{version_name}", "version": version_name}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": [version],
        "preferredVersion": version,
    }


@functools.cache
def _documents() -> dict[str, Object]:
    """Return {path: document}; read only."""
    # {group: its one version}
    groups = dict(sorted((row.group, row.version) for row in RESOURCES if row.group))
    prefixes = {"": "/api/v1"} | {
        group: f"/apis/{group}/{version}" for group, version in groups.items()
    }
    documents: dict[str, Object] = {
        "/": {"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]},
        "/version": dict(VERSION),
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(*group) for group in groups.items()],
        },
    }
    described: dict[str, Object] = {}
    for group, prefix in prefixes.items():
        rows = [row for row in RESOURCES if row.group == group]
        documents[prefix] = _resource_list(rows[0].api_version, rows)
        described[prefix] = openapi.document(rows, prefix, VERSION["gitVersion"])
        documents[f"/openapi/v3{prefix}"] = described[prefix]
        if group:
            documents[f"/apis/{group}"] = _group(group, groups[group])
    documents["/openapi/v3"] = openapi.index(prefixes.values(), described)
    return documents
