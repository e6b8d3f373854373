"""The names that others may build on; and the core needs nothing but an interpreter."""

import ast
import doctest
import inspect
import re
import sys
from pathlib import Path

import pytest

import scheduler_core
from tests.support.programs import run_python

_ROOT = Path(__file__).parents[2]
_README = (_ROOT / "scheduler_core" / "README.md").read_text(encoding="utf-8")
_EXAMPLES = re.findall(r"^```pycon\n(.*?)^```", _README, re.MULTILINE | re.DOTALL)
_NAMES = scheduler_core.__all__
_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import scheduler_core
for module in pkgutil.walk_packages(scheduler_core.__path__, "scheduler_core."):
    importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_the_examples_of_the_readme_answer_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(_ROOT)
    lines: list[str] = []
    examples = doctest.DocTestParser().get_doctest(
        "\n".join(_EXAMPLES), {}, "README.md", None, None
    )

    result = doctest.DocTestRunner().run(examples, out=lines.append)

    assert "".join(lines) == ""
    assert result.attempted > 20


@pytest.mark.parametrize("name", _NAMES)
def test_each_export_has_a_docstring(name: str) -> None:
    found = getattr(scheduler_core, name)
    said = inspect.getdoc(found)

    assert inspect.isclass(found) or inspect.isfunction(found)
    assert said
    assert not said.startswith(f"{found.__name__}(")  # a dataclass without one


@pytest.mark.parametrize("name", _NAMES)
def test_each_export_is_named_and_used_in_the_readme(name: str) -> None:
    imports = re.findall(r"from scheduler_core import (.*)", "\n".join(_EXAMPLES))

    assert f"`{name}`" in _README
    assert name in ", ".join(imports).split(", ")
    assert len(re.findall(rf"\b{name}\b", "".join(_EXAMPLES))) > 1


def test_what_is_exported_is_what_type_checkers_see() -> None:
    tree = ast.parse(Path(scheduler_core.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        name.asname or name.name: (node.module, name.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    assert {
        name: (f"scheduler_core.{module}", attribute)
        for name, (module, attribute) in scheduler_core._HOMES.items()
    } == seen
    assert sorted(_NAMES) == sorted(seen)


def test_a_name_that_is_not_exported_is_missing() -> None:
    with pytest.raises(AttributeError, match=r"^module 'scheduler_core' has no .*'no'"):
        _ = vars(scheduler_core)["__getattr__"]("no")


def test_an_import_of_the_package_imports_none_of_its_modules() -> None:
    """The agent reads formats only, and would pay for all the rest."""
    script = (
        "import scheduler_core, sys; print(*(n for n in sys.modules if 'core.' in n))"
    )

    assert run_python("-c", script, cwd=_ROOT).stdout.strip() == ""


def test_all_of_the_core_imports_the_standard_library_only() -> None:
    """Without site-packages, and without the modules of this environment."""
    done = run_python("-I", "-S", "-c", _IMPORT_ALL, str(_ROOT))

    others = set(done.stdout.split()) - sys.stdlib_module_names
    assert others == {"scheduler_core", "__main__"}
