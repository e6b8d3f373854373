"""Label and field selectors: text in, a predicate out.

Source: apimachinery v0.36.3, `pkg/labels/selector.go` and
`pkg/fields/selector.go`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object, metadata_of
from sandbox.apiserver.resources import Resource

#: Says whether an object is selected.
Predicate: TypeAlias = Callable[[Object], bool]

_Labels: TypeAlias = Mapping[str, str]
_Requirement: TypeAlias = Callable[[_Labels], bool]

_KEY = r"(?P<key>[A-Za-z0-9][\w./-]*)"
_SET = re.compile(rf"{_KEY}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(rf"{_KEY}\s*(?P<verb>==|=|!=)\s*(?P<value>[\w.-]*)$")
_ORDER = re.compile(rf"{_KEY}\s*(?P<verb>[<>])\s*(?P<value>-?\d+)$")
_PRESENCE = re.compile(rf"(?P<not>!?)\s*{_KEY}$")
# A comma separates requirements, except inside the parentheses of a set.
_COMMA = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"(?P<field>[^=!]+)(?P<verb>==|=|!=)(?P<value>.*)$")

# Where a field's value is not what its name says, or is not empty by default.
_FIELD_PATHS = {
    "source": "source.component",
    "status.successful": "status.succeeded",
}
_FIELD_DEFAULTS = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.successful": "0",
}


def everything(_document: Object) -> bool:
    """Select every object."""
    return True


def parse(resource: Resource, *, labels: str, fields: str) -> Predicate:
    """Return the predicate of a label selector and a field selector.

    Args:
        resource: What is selected; it says which fields may be named.
        labels: As in `labelSelector=`; empty selects all.
        fields: As in `fieldSelector=`; empty selects all.

    Raises:
        StatusError: A selector that the real server refuses: 400.
    """
    requirements = [_requirement(part) for part in _parts(labels)]
    terms = [_term(resource, part) for part in fields.split(",") if part]
    if not requirements and not terms:
        return everything

    def selected(document: Object) -> bool:
        carried: _Labels = metadata_of(document).get("labels") or {}
        return all(term(document) for term in terms) and all(
            requirement(carried) for requirement in requirements
        )

    return selected


def _parts(labels: str) -> list[str]:
    return [part.strip() for part in _COMMA.split(labels)] if labels.strip() else []


def _requirement(text: str) -> _Requirement:
    if match := _SET.match(text):
        return _membership(match)
    if match := _EQUALITY.match(text):
        equal, verb, value = match["key"], match["verb"], match["value"]
        return lambda labels: (labels.get(equal) == value) is (verb != "!=")
    if match := _ORDER.match(text):
        return _order(match["key"], match["verb"], int(match["value"]))
    if match := _PRESENCE.match(text):
        key, present = match["key"], not match["not"]
        return lambda labels: (key in labels) is present
    raise statuses.bad_request(
        f'unable to parse requirement: found {text!r}, expected: key, "=", "in" …'
    )


def _membership(match: re.Match[str]) -> _Requirement:
    key, negated = match["key"], match["verb"] == "notin"
    values = frozenset(value.strip() for value in match["values"].split(","))
    if negated:
        return lambda labels: labels.get(key) not in values
    return lambda labels: key in labels and labels[key] in values


def _order(key: str, verb: str, bound: int) -> _Requirement:
    def holds(labels: _Labels) -> bool:
        try:
            number = int(labels.get(key, ""))
        except ValueError:
            return False
        return number > bound if verb == ">" else number < bound

    return holds


def _term(resource: Resource, text: str) -> Predicate:
    match = _FIELD.match(text)
    if match is None:
        raise statuses.bad_request(
            f"invalid selector: '{text}'; can't understand '{text}'"
        )
    field, wanted = match["field"], match["value"]
    if field not in resource.selectable:
        raise statuses.bad_request(f"field label not supported: {field}")
    if match["verb"] == "!=":
        return lambda document: field_of(document, field) != wanted
    return lambda document: field_of(document, field) == wanted


def field_of(document: Object, field: str) -> str:
    """Return the text that a field selector compares."""
    value: Any = document
    for step in _FIELD_PATHS.get(field, field).split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or value == "":
        return _FIELD_DEFAULTS.get(field, "")
    return str(value)
