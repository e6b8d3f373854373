"""The pages for newcomers name files, functions and layers that exist."""

import ast
import dataclasses
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from extender.cache import reservations
from extender.gang import job_plan
from extender.gang.job_plan import JobPlan
from extender.kube_scheduler.sent_binds import OPEN_S
from extender.preemption.attempt import Limits
from extender.volcano.sessions import UNBOUND_S

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PAGES = [PAGE, ROOT / "docs" / "glossary.md", ROOT / "docs" / "keys.md"]
#: `agent/claims/ledger.py`, `agent/claims/ledger.py:step`
NAMED = re.compile(r"`([a-z]\w*(?:/\w+)*\.py)(?:::?(\w+))?`")
FOLDER = re.compile(r"`([a-z]\w*(?:/\w+)*/)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_functions_of_the_page_exist(page: Path) -> None:
    missing = []
    for path, name in NAMED.findall(page.read_text()):
        file = ROOT / path
        text = file.read_text() if file.exists() else ""
        defined = rf"^\s*(?:(?:async )?def|class) {name}\b"
        if not text or (name and not re.search(defined, text, re.MULTILINE)):
            missing.append(f"{path}:{name}" if name else path)

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_folders_of_the_page_exist(page: Path) -> None:
    folders = FOLDER.findall(page.read_text())

    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_each_attribute_of_the_extender_that_holds_state_says_what_it_holds() -> None:
    """Such attributes are annotated in `__init__`, or are made by a default factory."""
    stateful, silent = 0, []
    for path in sorted((ROOT / "extender").rglob("*.py")):
        lines = path.read_text().splitlines()
        for owner, attribute in _attributes_with_state(ast.parse("\n".join(lines))):
            stateful += 1
            if not lines[attribute.lineno - 2].strip().startswith("#: "):
                silent.append(f"{path.name}:{owner}.{ast.unparse(attribute.target)}")

    assert silent == []
    assert stateful > 100


def _attributes_with_state(module: ast.Module) -> Iterator[tuple[str, ast.AnnAssign]]:
    for owner in ast.walk(module):
        if isinstance(owner, ast.ClassDef):
            is_frozen = any("frozen=" in ast.unparse(d) for d in owner.decorator_list)
            for node in ast.walk(owner):
                if isinstance(node, ast.AnnAssign) and (
                    isinstance(node.target, ast.Attribute)
                    or (not is_frozen and "default_factory" in ast.unparse(node))
                ):
                    yield owner.name, node


def test_the_head_of_reservations_has_each_owner_and_names_functions_that_exist() -> (
    None
):
    head = reservations.__doc__ or ""
    modules = [
        ast.parse(path.read_text()) for path in (ROOT / "extender").rglob("*.py")
    ]
    named = re.findall(r"`(\w+)\.(\w+)`", head)

    assert set(re.findall(r"^\* ([A-Z]{2,})\b", head, re.MULTILINE)) == {
        owner.name for owner in reservations.Owner
    }
    assert len(named) > 10
    assert [name for name in named if not _is_defined(name, modules)] == []


def test_the_head_of_reservations_has_the_times_of_the_source() -> None:
    limits = Limits()

    assert re.findall(r"After (\d+) s", reservations.__doc__ or "") == [
        f"{seconds:.0f}"
        for seconds in (
            reservations.REVIEW_S,
            OPEN_S,
            UNBOUND_S,
            limits.longest_s,
            limits.ready_s,
            reservations.REVIEW_S,
            reservations.REVIEW_S,
        )
    ]


def _is_defined(named: tuple[str, str], modules: Sequence[ast.Module]) -> bool:
    """Whether a class, or a module by its name, has the function."""
    owner, name = named
    return any(
        isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name == name
        for module in modules
        for holder in module.body
        if isinstance(holder, ast.ClassDef) and holder.name == owner
        for function in holder.body
    ) or any(
        re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE)
        for path in (ROOT / "extender").rglob(f"{owner}.py")
    )


def test_the_head_of_a_jobs_plan_names_the_modules_that_change_it() -> None:
    fields = {field.name for field in dataclasses.fields(JobPlan)}
    writers = {
        path.name
        for path in (ROOT / "extender").rglob("*.py")
        if fields & set(_changed_of_a_plan(ast.parse(path.read_text())))
    }

    assert set(re.findall(r"`(\w+\.py)`", job_plan.__doc__ or "")) == writers


def _changed_of_a_plan(module: ast.Module) -> Iterator[str]:
    """Yield attributes of a `plan` that are assigned, or that a method may change."""
    changing = {"add", "append", "clear", "discard", "pop", "remove", "update"}
    for node in ast.walk(module):
        changed: Sequence[ast.AST] = ()
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                changed = targets
            case ast.AugAssign(target=target):
                changed = [target]
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if (
                name in changing
            ):
                changed = [value]
            case _:
                pass
        for each in changed:
            for part in ast.walk(each):
                if isinstance(part, ast.Attribute) and (
                    ast.unparse(part.value).rpartition(".")[2] == "plan"
                ):
                    yield part.attr


def test_the_walks_name_a_function_in_each_step() -> None:
    walks = PAGE.read_text().split("\n## Walk ")[1:]
    steps = [
        line.split(" | ")[1]
        for walk in walks
        for line in walk.partition("\n## ")[0].splitlines()
        if re.match(r"\| \d+ \|", line)
    ]

    assert len(walks) == 3
    assert len(steps) > 60
    assert [step for step in steps if not NAMED.search(step)[2]] == []  # type: ignore[index]


def test_the_picture_has_the_layers_of_the_import_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = {
        contract["containers"][0]: contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers" and "." not in contract["containers"][0]
    }
    picture = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()

    assert {name: _layers_of(name, picture) for name in layers} == layers


def _layers_of(name: str, picture: list[str]) -> list[str]:
    """Return the layers that the box of a package shows, from top to bottom."""
    titles = [re.search(rf"│ {name} +│", line) for line in picture]
    row, title = next((row, found) for row, found in enumerate(titles) if found)
    left, right = title.start(), title.end() - 1
    cells = [line[left : right + 1] for line in picture[row:]]
    cells = cells[: next(i for i, cell in enumerate(cells) if cell.startswith("└"))]
    cells = cells[next(i for i, cell in enumerate(cells) if cell.startswith("├")) + 1 :]
    text = "\n".join(cell.strip("│ ") for cell in cells).strip()
    return text.replace("·\n", "· ").replace(" · ", " | ").splitlines()
