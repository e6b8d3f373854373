"""Words that are no longer identifiers; docs/glossary.md has those in their place.

A word counts as used if an identifier is that word, or has it as a part between
underscores or capitals.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent", "extender", "kube", "scheduler_core", "service")

#: Words that appear in no identifier, not even as a part.
RETIRED = frozenset(
    (
        "assumed",
        "crew",
        "doors",
        "equipment",
        "hear",
        "hearing",
        "inherited",
        "judgement",
        "keeper",
        "leftovers",
        "office",
        "patience",
        "picture",
        "premises",
        "promise",
        "promised",
        "promises",
        "seat",
        "seated",
        "seats",
        "sight",
        "somebody",
        "storm",
        "storms",
        "sweep",
        "sweeps",
        "told",
        "verdict",
        "verdicts",
        "whoever",
        "world",
    )
)
#: Words that are no identifier by themselves: a noun has to stand with them.
NOT_ALONE = frozenset(("beside", "each", "kept", "said", "settle", "settled", "there"))


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name
            case _:
                pass


def retired_in(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {part.lower() for part in parts} & RETIRED | {
        name.strip("_").lower()
    } & NOT_ALONE


@pytest.mark.parametrize("package", PACKAGES)
def test_no_identifier_is_a_retired_word(package: str) -> None:
    used = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in identifiers(ast.parse(path.read_text()))
        if retired_in(name)
    }

    assert used == set()


def test_no_module_is_called_by_a_retired_word() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]

    assert [path.stem for path in paths if retired_in(path.stem)] == []


def test_a_part_of_a_name_counts_and_a_longer_word_does_not() -> None:
    assert retired_in("_put_promise") == {"promise"}
    assert retired_in("OwnerStorms") == {"storms"}
    assert retired_in("seating") == set()
    assert retired_in("_kept") == {"kept"}
    assert retired_in("kept_pods") == set()
