"""A cache needs no clearing between tests: no test can change what it remembers.

Remembered are functions of their arguments and of files that ship. The results are
values, or say that they are read only.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.modules import PRODUCT, ROOT

_CACHES = {"cache", "lru_cache"}
_CHANGEABLE = re.compile(r"\b(bytearray|defaultdict|deque|dict|list|set|Any|Object)\b")


def changeable(source: str) -> Iterator[str]:
    """Yield functions with a cache whose result a caller could change."""
    tree = ast.parse(source)
    wrapped = {name for node in ast.walk(tree) for name in _wrapped(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.name in wrapped or any(map(_is_cache, node.decorator_list)):
            result = "Any" if node.returns is None else ast.unparse(node.returns)
            says_so = "read only" in (ast.get_docstring(node) or "")
            if _CHANGEABLE.search(result) and not says_so:
                yield node.name


def _wrapped(node: ast.AST) -> Iterator[str]:
    """Yield the function in `cache(function)` and `lru_cache(maxsize=…)(function)`."""
    if isinstance(node, ast.Call) and _is_cache(node.func):
        yield from (each.id for each in node.args if isinstance(each, ast.Name))


def _is_cache(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function).rpartition(".")[2] in _CACHES


def test_no_result_that_is_remembered_can_be_changed() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for package in PRODUCT
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in changeable(path.read_text(encoding="utf-8"))
    }

    assert found == set()


@pytest.mark.parametrize(
    "source",
    [
        "@cache\ndef f() -> dict[str, int]: ...",
        "@functools.lru_cache(maxsize=9)\ndef f(): ...",
        "def f() -> list[int]: ...\ng = lru_cache(maxsize=9)(f)",
        "@cache\ndef f() -> tuple[set[int], ...]:\n    '''Return sets.'''",
    ],
)
def test_a_result_that_can_be_changed_is_found(source: str) -> None:
    assert list(changeable(source)) == ["f"]


@pytest.mark.parametrize(
    "source",
    [
        "@cache\ndef f() -> tuple[int, ...]: ...",
        "@cache\ndef f() -> Mapping[str, int]: ...",
        "@cache\ndef f() -> dict[str, int]:\n    '''Return all; read only.'''",
        "def f() -> dict[str, int]: ...",
    ],
)
def test_values_and_what_is_read_only_may_be_remembered(source: str) -> None:
    assert list(changeable(source)) == []
