"""In which order a list stands after a strategic merge patch.

What the patch names comes in the order that the patch says; what only the server has
keeps its order; where both were there before, they stay as they were to each other.

Source: apimachinery v0.36.3, `normalizeElementOrder` in
`pkg/util/strategicpatch/patch.go`.
"""

from collections.abc import Sequence
from typing import Any


class NoMergeKeyError(Exception):
    """An element lacks the field that tells elements apart."""

    def __init__(self, element: Any, key: str) -> None:
        super().__init__(f"map: {element} does not contain declared merge key: {key}")


def identity(element: Any, key: str) -> Any:
    """Return what tells an element from others.

    Args:
        element: Of the list.
        key: The list's merge key; empty for a list of plain values.

    Raises:
        NoMergeKeyError: The element has none.
    """
    if not key:
        return element
    if not isinstance(element, dict) or key not in element:
        raise NoMergeKeyError(element, key)
    return element[key]


def ordered(
    elements: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any], key: str
) -> list[Any]:
    """Return the elements in order.

    Args:
        elements: What the list holds now.
        wanted: The order that the patch says; may name what is not there.
        before: The list before the patch.
        key: Its merge key; empty for a list of plain values.

    Raises:
        NoMergeKeyError: An element cannot be told from others.
    """
    named = _places(wanted, key)
    old = _places(before, key)
    told = [element for element in elements if identity(element, key) in named]
    rest = [element for element in elements if identity(element, key) not in named]
    told.sort(key=lambda element: named[identity(element, key)])
    rest.sort(key=lambda element: old.get(identity(element, key), len(old)))
    return _merged(rest, told, old, key)


def _merged(
    rest: list[Any], told: list[Any], old: dict[Any, int], key: str
) -> list[Any]:
    """Merge two sorted lists; those that were not there before come first."""
    result = []
    while rest and told:
        left = old.get(identity(rest[0], key))
        right = old.get(identity(told[0], key))
        comes_first = left is not None and right is not None and left < right
        result.append((rest if comes_first else told).pop(0))
    return [*result, *rest, *told]


def _places(elements: Sequence[Any], key: str) -> dict[Any, int]:
    """Return {identity: the first place that has it}."""
    places: dict[Any, int] = {}
    for place, element in enumerate(elements):
        places.setdefault(identity(element, key), place)
    return places
