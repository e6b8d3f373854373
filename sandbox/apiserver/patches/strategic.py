"""Strategic merge patch: as a merge patch, but known lists merge by a key.

Which lists, and by which key, is a table of the core types; all other lists are
replaced, `tolerations` among them. A list's name decides, wherever it occurs:
right for all kinds that are served here.

Source: apimachinery v0.36.3, `pkg/util/strategicpatch/patch.go`; the keys are
the `patchMergeKey` tags of `k8s.io/api` v0.36.3, `core/v1/types.go`.
"""

from collections.abc import Sequence
from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object

_MERGE_KEYS = {
    "addresses": "type",
    "allocatedResourcesStatus": "name",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def apply(document: Object, patch: Any) -> Object:
    """Return `document` with the strategic merge patch applied.

    Raises:
        StatusError: The patch is not an object, a directive is unknown, or an
            element lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise statuses.bad_request("a strategic merge patch must be a JSON object")
    return _merged(document, patch)


def _merged(target: Any, patch: Object) -> Object:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return _plain(patch)
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise statuses.bad_request(f"unknown patch type: {directive!r}")
    result: Object = target if isinstance(target, dict) else {}
    _retain(result, patch)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_member(result, key, value)
    _reorder(result, patch)
    return result


def _plain(patch: Object) -> Object:
    """Return what a `replace` puts in place: all but the directives."""
    return {key: value for key, value in patch.items() if not key.startswith("$")}


def _retain(result: Object, patch: Object) -> None:
    if (kept := patch.get(_RETAIN_KEYS)) is not None:
        for key in [key for key in result if key not in kept]:
            del result[key]


def _merge_member(result: Object, key: str, value: Any) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        merged = _merged(result.get(key), value)
        if merged or value.get(_DIRECTIVE) != "delete":
            result[key] = merged
        else:
            result.pop(key, None)
    elif isinstance(value, list) and key in _MERGE_KEYS:
        result[key] = _merged_list(result.get(key) or [], value, _key_name(key, value))
    elif isinstance(value, list) and key in _PRIMITIVE_SETS:
        present = result.get(key) or []
        result[key] = [*present, *(item for item in value if item not in present)]
    else:
        result[key] = value


def _key_name(field: str, elements: Sequence[Any]) -> str:
    # Ports of a Service have another key than those of a container.
    if field == "ports" and any("port" in element for element in elements):
        return "port"
    return _MERGE_KEYS[field]


def _merged_list(present: list[Any], patch: list[Any], key: str) -> list[Any]:
    directives = [element for element in patch if _is_replace(element)]
    if directives:
        return [element for element in patch if not _is_replace(element)]
    result = list(present)
    for element in patch:
        _merge_element(result, element, key)
    return result


def _is_replace(element: Any) -> bool:
    return isinstance(element, dict) and element.get(_DIRECTIVE) == "replace"


def _merge_element(result: list[Any], element: Any, key: str) -> None:
    if not isinstance(element, dict) or key not in element:
        raise statuses.bad_request(
            f"map: {element} does not contain declared merge key: {key}"
        )
    places = [place for place, old in enumerate(result) if old.get(key) == element[key]]
    if element.get(_DIRECTIVE) == "delete":
        for place in reversed(places):
            del result[place]
    elif places:
        result[places[0]] = _merged(result[places[0]], element)
    else:
        result.append(_merged({}, element))


def _reorder(result: Object, patch: Object) -> None:
    """Carry out what concerns whole lists: removals from sets, and the order."""
    for directive, value in patch.items():
        if directive.startswith(_DELETE_PRIMITIVES):
            field = directive.removeprefix(_DELETE_PRIMITIVES)
            kept = [item for item in result.get(field) or () if item not in value]
            result[field] = kept
    for directive, value in patch.items():
        if directive.startswith(_ORDER):
            field = directive.removeprefix(_ORDER)
            if field in result:
                result[field] = _ordered(result[field], value, field)


def _ordered(elements: list[Any], order: list[Any], field: str) -> list[Any]:
    """Sort the named elements as `order` says; the others keep their places after."""
    key = _MERGE_KEYS.get(field)
    wanted = [item[key] if key else item for item in order]
    names = [element.get(key) if key else element for element in elements]
    named = sorted(
        (place for place, name in enumerate(names) if name in wanted),
        key=lambda place: wanted.index(names[place]),
    )
    rest = [place for place, name in enumerate(names) if name not in wanted]
    return [elements[place] for place in (*named, *rest)]
