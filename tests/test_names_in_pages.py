"""Names of modules and of what is in them, as pages for developers cite them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: {page: where its short references lead}
PAGES = {
    "scheduler_core/README.md": ("scheduler_core",),
    "tests/mutation.md": ("agent/claims", "scheduler_core"),
}
#: `module.name`, `Class.method`, or `scheduler_core.package`; in prose only.
DOTTED = re.compile(r"`([A-Za-z_]\w*)\.([A-Za-z_]\w*)`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FILES = ("py", "md", "json", "yaml")


def names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (each.id for each in targets if isinstance(each, ast.Name))
            case _:
                pass


def known(below: tuple[str, ...]) -> set[tuple[str, str]]:
    """(module or class, name in it) and (package, package or module in it)."""
    found = set()
    for path in (path for folder in below for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_package = path.name == "__init__.py"
        owner = path.parent.name if is_package else path.stem
        found |= {(owner, name) for name in names(tree.body)}
        inside = path.parent if is_package else path
        found.add((inside.parent.name, owner))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found |= {(node.name, name) for name in names(node.body)}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_dotted_name_of_a_page_exists(page: str) -> None:
    prose = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    cited = {pair for pair in DOTTED.findall(prose) if pair[1] not in FILES}

    assert len(cited) > 5
    assert sorted(cited - known(PAGES[page])) == []


def test_the_readme_of_the_core_names_each_of_its_packages() -> None:
    page = (ROOT / "scheduler_core" / "README.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in ROOT.glob("scheduler_core/*/__init__.py")}

    assert (
        set(re.findall(r"^\| `scheduler_core\.(\w+)` \|", page, re.MULTILINE))
        == packages
    )


def how_tos() -> dict[str, str]:
    """The sections of docs/extending.md that say how to add something, by title."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    sections = (each.partition("\n") for each in page.split("\n## "))
    return {title: text for title, _, text in sections if title.startswith("A new ")}


@pytest.mark.parametrize("title", how_tos())
def test_each_name_of_a_how_to_is_in_one_of_its_files(title: str) -> None:
    text = how_tos()[title]
    files = [ROOT / name for name in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", text)]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files)
    cited = set(re.findall(r"`([A-Za-z_]\w+)`", text))

    assert len(files) > 2
    absent = [name for name in cited if not re.search(rf"\b{name}\b", sources)]
    assert absent == []
