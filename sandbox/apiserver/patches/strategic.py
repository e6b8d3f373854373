"""Strategic merge patch: as a merge patch, but some lists merge by a key.

Which lists, and by which key, the type of the object says (`openapi.types`); all other
lists are replaced, `tolerations` among them.

Source: apimachinery v0.36.3, `pkg/util/strategicpatch/patch.go`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.apiserver import statuses
from sandbox.apiserver.objects import Object
from sandbox.apiserver.openapi import types

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


class _PatchError(Exception):
    """The patch cannot be carried out."""


def apply(document: Object, patch: Any, schema: Object) -> Object:
    """Return `document` with the strategic merge patch applied.

    Args:
        document: Ours to change.
        patch: The patch.
        schema: Of the document's type.

    Raises:
        StatusError: The patch is not an object, its directives are malformed, or an
            element lacks its merge key.
    """
    if not isinstance(patch, dict):
        raise statuses.bad_request("a strategic merge patch must be a JSON object")
    try:
        return _merged(document, patch, schema)
    except _PatchError as error:
        raise statuses.plain_failure(str(error)) from error


def _merged(target: Any, patch: Object, schema: Object) -> Object:
    if _DIRECTIVE in patch:
        return _directed(patch)
    result: Object = target if isinstance(target, dict) else {}
    _retain(result, patch)
    settled = _settle_orders(result, patch, schema)
    for key, value in patch.items():
        if key.startswith(_DELETE_PRIMITIVES):
            field = key.removeprefix(_DELETE_PRIMITIVES)
            if isinstance(result.get(field), list) and isinstance(value, list):
                result[field] = [item for item in result[field] if item not in value]
        elif not key.startswith("$") and key not in settled:
            _merge_member(result, key, value, types.field(schema, key))
    return result


def _directed(patch: Object) -> Object:
    match patch[_DIRECTIVE]:
        case "replace":
            rest = {key: value for key, value in patch.items() if key != _DIRECTIVE}
            replaced: Object = _plain(rest)
            return replaced
        case "delete":
            return {}
        case other:
            raise _PatchError(f"unknown patch type: {other} in map: {patch}")


def _plain(value: Any) -> Any:
    """Return what a patch puts where nothing was: all but its directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(member)
            for key, member in value.items()
            if member is not None
            and not _is_directive(key)
            and not _is_directed(member)
        }
    if isinstance(value, list):
        return [_plain(member) for member in value if not _is_directed(member)]
    return value


def _is_directive(key: str) -> bool:
    return key == _RETAIN_KEYS or key.startswith((_DELETE_PRIMITIVES, _ORDER))


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and _DIRECTIVE in value


def _retain(result: Object, patch: Object) -> None:
    """Drop what `$retainKeys` does not name; all that the patch sets must be named."""
    if _RETAIN_KEYS not in patch:
        return
    kept = patch[_RETAIN_KEYS]
    is_list = isinstance(kept, list)
    if not is_list or any(
        key not in kept
        for key, value in patch.items()
        if value is not None and not _is_directive(key)
    ):
        raise statuses.bad_request("invalid patch format of retainKeys")
    for key in [key for key in result if key not in kept]:
        del result[key]


def _merge_member(result: Object, key: str, value: Any, schema: Object) -> None:
    old = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(old, dict) and isinstance(value, dict):
        result[key] = _merged(old, value, schema)
    elif isinstance(old, list) and isinstance(value, list):
        result[key] = _merged_list(old, value, schema)
    elif _is_directed(value):
        result.pop(key, None)
    else:
        result[key] = _plain(value)


def _merged_list(old: list[Any], patch: list[Any], schema: Object) -> list[Any]:
    """Merge a list as its type says; one that does not merge is replaced."""
    if "merge" not in schema.get("x-kubernetes-patch-strategy", "").split(","):
        return [_plain(element) for element in patch]
    key: str = schema.get("x-kubernetes-patch-merge-key", "")
    elements = [*old, *patch]
    if any(isinstance(element, list) for element in elements):
        raise statuses.unprocessable("lists of lists are not supported")
    if not key:
        return _ordered(list(dict.fromkeys(elements)), patch, old, key)
    return _merged_elements(old, patch, key, schema.get("items", {}))


def _merged_elements(
    old: list[Any], patch: list[Any], key: str, schema: Object
) -> list[Any]:
    result, plain = list(old), []
    is_replaced = False
    for element in patch:
        match element.get(_DIRECTIVE) if isinstance(element, dict) else None:
            case None:
                plain.append(element)
            case "delete":
                gone = _identity(element, key)
                result = [item for item in result if _identity(item, key) != gone]
            case "replace":
                is_replaced = True
            case other:
                raise _PatchError(f"unknown patch type: {other} in map: {element}")
    if is_replaced:
        return [_plain(element) for element in plain]
    for element in plain:
        _merge_element(result, element, key, schema)
    return _ordered(result, plain, old, key)


def _merge_element(
    result: list[Any], element: Any, key: str, schema: Mapping[str, Any]
) -> None:
    name = _identity(element, key)
    for place, found in enumerate(result):
        if _identity(found, key) == name:
            result[place] = _merged(found, element, dict(schema))
            return
    result.append(_plain(element))


def _settle_orders(result: Object, patch: Object, schema: Object) -> set[str]:
    """Carry out each `$setElementOrder` with its list; return the lists' names."""
    settled = set()
    for directive, wanted in patch.items():
        if not directive.startswith(_ORDER):
            continue
        field = directive.removeprefix(_ORDER)
        settled.add(field)
        old, added = result.get(field), patch.get(field)
        if old is None and added is None:
            continue
        if not all(isinstance(part, list | None) for part in (wanted, old, added)):
            raise statuses.bad_request("invalid patch format of setElementOrder list")
        result[field] = _in_order(old, added, wanted or [], types.field(schema, field))
    return settled


def _in_order(
    old: list[Any] | None, added: list[Any] | None, wanted: list[Any], schema: Object
) -> list[Any]:
    key: str = schema.get("x-kubernetes-patch-merge-key", "")
    _check_order(added or [], wanted, key)
    if added is None:
        merged = list(old or ())
    elif old is None:
        merged = [_plain(element) for element in added if not _is_directed(element)]
    else:
        merged = _merged_list(old, added, schema)
    return _ordered(merged, wanted, old or [], key)


def _check_order(added: list[Any], wanted: list[Any], key: str) -> None:
    """Raise unless what the patch adds comes in the order that it says."""
    if not added or not wanted:
        return
    names = [_identity(element, key) for element in wanted]
    rest = iter(names)
    for element in added:
        if not _is_directed(element) and _identity(element, key) not in rest:
            raise _PatchError(
                f"The order in patch list:\n{added}\n doesn't match "
                f"$setElementOrder list:\n{wanted}\n"
            )


def _identity(element: Any, key: str) -> Any:
    """Return what tells an element from others.

    Args:
        element: Of the list.
        key: The list's merge key; empty for a list of plain values.

    Raises:
        _PatchError: The element has none.
    """
    if not key:
        return element
    if not isinstance(element, dict) or key not in element:
        raise _PatchError(f"map: {element} does not contain declared merge key: {key}")
    return element[key]


def _ordered(
    elements: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any], key: str
) -> list[Any]:
    """Return the elements in order.

    What the patch names comes in the order that the patch says; what only the server
    has keeps its order; where both were there before, they stay as they were to each
    other (`normalizeElementOrder`).

    Args:
        elements: What the list holds now.
        wanted: The order that the patch says; may name what is not there.
        before: The list before the patch.
        key: Its merge key; empty for a list of plain values.

    Raises:
        _PatchError: An element cannot be told from others.
    """
    named = _places(wanted, key)
    old = _places(before, key)
    told = [element for element in elements if _identity(element, key) in named]
    rest = [element for element in elements if _identity(element, key) not in named]
    told.sort(key=lambda element: named[_identity(element, key)])
    rest.sort(key=lambda element: old.get(_identity(element, key), len(old)))
    return _interleaved(rest, told, old, key)


def _interleaved(
    rest: list[Any], told: list[Any], old: dict[Any, int], key: str
) -> list[Any]:
    """Merge two sorted lists; those that were not there before come first."""
    result = []
    while rest and told:
        left = old.get(_identity(rest[0], key))
        right = old.get(_identity(told[0], key))
        comes_first = left is not None and right is not None and left < right
        result.append((rest if comes_first else told).pop(0))
    return [*result, *rest, *told]


def _places(elements: Sequence[Any], key: str) -> dict[Any, int]:
    """Return {identity: the first place that has it}."""
    places: dict[Any, int] = {}
    for place, element in enumerate(elements):
        places.setdefault(_identity(element, key), place)
    return places
