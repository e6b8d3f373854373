"""The pages for newcomers name files, functions and layers that exist."""

import re
import tomllib
from pathlib import Path

import pytest

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


def test_the_tables_of_state_name_attributes_that_exist() -> None:
    tables = PAGE.read_text().split("| class | attribute | ")[1:]
    rows = [
        line.split(" | ")[:2]
        for table in tables
        for line in table.partition("\n\n")[0].splitlines()[2:]
    ]
    owner, missing = "", []
    for holder, attributes in rows:
        owner = holder.strip("| `") or owner
        path, _, name = owner.partition(":")
        body = re.search(
            rf"^class {name}\b.*?(?=^\S)",
            (ROOT / path).read_text() + "\nend",
            re.MULTILINE | re.DOTALL,
        )
        missing += [
            f"{owner}.{attribute}"
            for attribute in re.findall(r"`(\w+)`", attributes)
            if not body
            or not re.search(
                rf"^    (?:    self\.)?{attribute}(?::| =)", body[0], re.MULTILINE
            )
        ]

    assert len(rows) > 80
    assert missing == []


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
