"""Which fields a type has, and what is known of each."""

import functools
import json
from pathlib import Path

from sandbox.apiserver.objects import Object
from sandbox.apiserver.resources import Resource
from service import openapi

FILE = Path(__file__).with_name("schemas.json")

_PACKAGES = {
    "": "core",
    "apps": "apps",
    "batch": "batch",
    "coordination.k8s.io": "coordination",
    "policy": "policy",
}
#: A type of which nothing is known: whatever is in it is right.
UNKNOWN: Object = {}


@functools.cache
def definitions() -> dict[str, Object]:
    """Return all schemas, {name: schema}; read only."""
    found: dict[str, Object] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def name_of(schema: Object) -> str:
    """Return the name of the schema that this one refers to; "" if to none."""
    own = (schema, *schema.get("allOf", ()))
    return next((openapi.name_of(part) for part in own if "$ref" in part), "")


def name_of_kind(resource: Resource) -> str:
    """Return the name of the schema of a resource's objects."""
    return f"io.k8s.api.{_PACKAGES[resource.group]}.{resource.version}.{resource.kind}"


def of_kind(resource: Resource) -> Object:
    """Return the schema of a resource's objects."""
    return definitions()[name_of_kind(resource)]


def resolved(schema: Object) -> Object:
    """Return the schema that this one refers to, or itself."""
    name = name_of(schema)
    return definitions()[name] if name else schema


def field(schema: Object, name: str) -> Object:
    """Return the schema of a field as it stands in its type, references unresolved.

    What is said of the field itself, how its list is patched above all, is only there.
    """
    whole = resolved(schema)
    properties: dict[str, Object] = whole.get("properties", {})
    found: Object = properties.get(name) or whole.get("additionalProperties", UNKNOWN)
    return found


def description(schema: str, name: str = "") -> str:
    """Return what is written about a type, or a field of it, in one line.

    Args:
        schema: Name of the type, without its package: `core.v1.Pod`.
        name: Of the field.
    """
    found = definitions()[f"io.k8s.{schema}"]
    text: str = (field(found, name) if name else found)["description"]
    return text
