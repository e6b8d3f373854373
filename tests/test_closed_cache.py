"""What the extender knows is changed by steps of the cache, and by nothing else."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Folders whose subject is that state.
OWNERS = {"cache", "gang"}
#: What other modules have in hand: the cache, a job, a view of either.
_KNOWN = re.compile(r"((self\._)?cache|(self\._)?view|gang|reservation)\b")
_CHANGING = re.compile(
    "add|append|clear|discard|drop|extend|insert|pop|put|remove|setdefault|update"
)


def writes(source: str) -> list[str]:
    """What a module assigns to, deletes from or calls to change in such an object."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute() | ast.Subscript() if not isinstance(
                node.ctx, ast.Load
            ):
                found.append(ast.unparse(node.value))
            case ast.Call(func=ast.Attribute(attr=attr, value=value)):
                found += [ast.unparse(value)] if _CHANGING.fullmatch(attr) else []
            case _:
                pass
    return [text for text in found if _KNOWN.match(text)]


def test_no_other_module_writes_into_what_the_cache_knows() -> None:
    found = {
        str(path.relative_to(ROOT)): texts
        for path in sorted((ROOT / "extender").rglob("*.py"))
        if path.relative_to(ROOT / "extender").parts[0] not in OWNERS
        and (texts := writes(path.read_text()))
    }

    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "gang.is_gated = False",
        "gang.places['a'] += 1",
        "del self._cache.pods['a']",
        "cache.index.put(state)",
        "self._cache.gangs['j'].members.clear()",
    ],
)
def test_a_write_is_found(line: str) -> None:
    assert len(writes(line)) == 1


def test_what_only_reads_is_none() -> None:
    assert writes("pods = self._cache.pods\nself._names['a'] = gang.job") == []
