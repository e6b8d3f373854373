"""Parts of an OpenAPI description: schemas, parameters, answers, the document.

The extender describes its own endpoints, the sandbox those of Kubernetes, and the
schema of scenario files is made of the same parts.
"""

from collections.abc import Iterable, Mapping
from typing import Any

#: JSON Schema, or another object of a description
Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/"
#: dialect of the JSON Schemas in OpenAPI 3.1
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def text(description: str) -> Schema:
    """Return the schema of a string."""
    return {"type": "string", "description": description}


def whole(description: str) -> Schema:
    """Return the schema of an integer."""
    return {"type": "integer", "description": description}


def array(items: Schema, description: str) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, "description": description}


def closed_object(*required: str, **properties: Schema) -> Schema:
    """Return the schema of an object that has no keys beside `properties`."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def reference(name: str) -> Schema:
    """Return a reference to a schema of the same document."""
    return {"$ref": f"{_REFERENCE}{name}"}


def name_of(reference: Schema) -> str:
    """Return the name of the schema that a reference names."""
    name: str = reference["$ref"]
    return name.removeprefix(_REFERENCE)


def _referred(schema: Any) -> Iterable[str]:
    """Yield the names of the schemas that a schema refers to, at any depth."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield name_of(schema)
        for member in schema.values():
            yield from _referred(member)
    elif isinstance(schema, list):
        for member in schema:
            yield from _referred(member)


def with_referred(
    names: Iterable[str], schemas: Mapping[str, Schema]
) -> dict[str, Schema]:
    """Return these of `schemas` and all that they refer to, by name."""
    found: dict[str, Schema] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = schemas[name]
            waiting += _referred(found[name])
    return dict(sorted(found.items()))


def parameter(name: str, place: str, schema: Schema, description: str = "") -> Schema:
    """Return a parameter of an operation.

    Args:
        name: Name in the path or query.
        place: `path`, where it is required, or `query`.
        schema: Schema of its value.
        description: Its effect, if the name does not tell.
    """
    return {
        "name": name,
        "in": place,
        **({"required": True} if place == "path" else {}),
        **({"description": description} if description else {}),
        "schema": schema,
    }


def content(schema: Schema) -> Schema:
    """Return the content of a body in JSON."""
    return {"application/json": {"schema": schema}}


def answer(description: str, schema: Schema) -> Schema:
    """Return an answer in JSON."""
    return {"description": description, "content": content(schema)}


def document(
    version: str, info: Schema, paths: Mapping[str, Schema], schemas: Mapping[str, Any]
) -> Schema:
    """Return a whole description.

    Args:
        version: Version of OpenAPI: `3.0.0` or `3.1.0`.
        info: Title and version of the API.
        paths: {path: {method: operation}}.
        schemas: {name: schema} for references.
    """
    dialect = {"jsonSchemaDialect": DIALECT} if version >= "3.1" else {}
    return {
        "openapi": version,
        "info": info,
        **dialect,
        "paths": dict(paths),
        "components": {"schemas": dict(schemas)},
    }
