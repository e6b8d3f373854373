"""Marks of tests, read from their files: importing them would take seconds."""

import ast
from collections.abc import Iterator
from pathlib import Path


def core(root: Path, folder: str) -> list[tuple[str, str]]:
    """Return (promise, test) of each mark `core`, in the order of files and lines.

    Raises:
        ValueError: A mark stands elsewhere than at a test, or names no promise.
    """
    found = []
    for path in test_files(root, folder):
        tree = _parsed(path, "core")
        marks = [*_core_of(tree)]
        if len(marks) != sum(_is_mark(node, "core") for node in ast.walk(tree)):
            raise ValueError(
                f"{path}: a mark `core` that is no decorator of a test, as in "
                '`@pytest.mark.core("race")`'
            )
        name = path.relative_to(root).as_posix()
        found += [(promise, f"{name}::{test}") for promise, test in marks]
    return found


def has(path: Path, mark: str) -> bool:
    """Whether a file has that mark anywhere."""
    return any(_is_mark(node, mark) for node in ast.walk(_parsed(path, mark)))


def _parsed(path: Path, mark: str) -> ast.Module:
    """Return a file's tree; an empty one for the many that do not have its words."""
    text = path.read_text(encoding="utf-8")
    return ast.parse(text if f"pytest.mark.{mark}" in text else "")


def test_files(root: Path, folder: str) -> list[Path]:
    """Return the files of tests below a folder."""
    return sorted((root / folder).rglob("test_*.py"))


def _core_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for test in tree.body:
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = (node for each in test.decorator_list for node in ast.walk(each))
        for node in nodes:
            if isinstance(node, ast.Call) and _is_mark(node.func, "core"):
                [promise] = node.args
                yield ast.literal_eval(promise), test.name


def _is_mark(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute) and ast.unparse(node) == f"pytest.mark.{name}"
    )
