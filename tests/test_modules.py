import ast
import re
from pathlib import Path

from tests.modules import PRODUCT, ROOT, Module, crowded, longer, read, unexplained


def module(name: str, lines: int = 100, docstring: str = "Names.") -> Module:
    return Module(path=Path(name), lines=lines, docstring=docstring)


def test_no_module_and_no_test_has_more_than_600_lines() -> None:
    assert list(longer(read(ROOT, (*PRODUCT, "benchmarks", "tests")), 600)) == []


def test_each_small_module_of_the_product_says_why_it_is_one() -> None:
    assert list(unexplained(read(ROOT, PRODUCT))) == []


def test_no_folder_of_the_product_is_crowded() -> None:
    modules = read(ROOT, PRODUCT)

    assert len(modules) > 100
    assert list(crowded(modules)) == []


def test_a_module_at_the_limit_passes_and_one_line_more_is_named() -> None:
    modules = [module("kube/a.py", 600), module("kube/b.py", 601)]

    assert list(longer(modules, 600)) == ["kube/b.py has 601 lines"]


def test_the_longest_module_comes_first() -> None:
    modules = [module("a.py", 5), module("c.py", 9), module("b.py", 9)]

    assert list(longer(modules, 1)) == [
        "b.py has 9 lines",
        "c.py has 9 lines",
        "a.py has 5 lines",
    ]


def test_a_module_under_40_lines_needs_a_reason_in_its_docstring() -> None:
    modules = [
        module("kube/none.py", 39),
        module("kube/other.py", 39, "Names.\n\nBecause they are few."),
        module("kube/empty.py", 39, "Names.\n\nA module of its own: "),
        module("kube/given.py", 39, "Names.\n\nA module of its own: two use it."),
        module("kube/within.py", 39, "Names.\n\nA module of\nits own, as two use it."),
        module("kube/large.py", 40),
        module("kube/__init__.py", 1),
        module("kube/__main__.py", 1),
    ]

    named = [line.partition(" ")[0] for line in unexplained(modules)]
    assert named == ["kube/none.py", "kube/other.py", "kube/empty.py"]


def test_a_folder_has_at_most_16_modules_or_24_outside_of_the_rules() -> None:
    sizes = {"agent/a": 16, "agent/b": 17, "sandbox/a": 24, "sandbox/b": 25}
    modules = [
        module(f"{folder}/{name}.py")
        for folder, count in sizes.items()
        for name in ("__init__", *range(count))
    ]

    assert list(crowded(modules)) == [
        "agent/b has 17 modules, expected at most 16",
        "sandbox/b has 25 modules, expected at most 24",
    ]


def test_the_charter_of_each_package_names_its_decision_records_or_says_none() -> None:
    charters = {
        str(path.relative_to(ROOT)): ast.get_docstring(ast.parse(path.read_text()))
        for package in PRODUCT
        for pattern in ("__init__.py", "*/__init__.py")
        for path in sorted((ROOT / package).glob(pattern))
    }
    records = {path.name for path in (ROOT / "docs" / "adr").glob("0*.md")}

    assert len(charters) > 30
    silent = [
        path
        for path, charter in charters.items()
        if not re.search(r"[Dd]ecision|[Rr]ecords?\b", charter or "")
    ]
    assert silent == []
    named = re.findall(r"docs/adr/([\w-]+\.md)", " ".join(map(str, charters.values())))
    assert set(named) <= records
