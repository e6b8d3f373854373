import re
from pathlib import Path

import pytest

from scheduler_core.__main__ import main

ROOT = Path(__file__).parents[1]
#: A command in the README, and the lines that it answers with.
COMMAND = re.compile(
    r"^\$ \S+ -m scheduler_core (.+)\n((?:(?!\$ |```).*\n)+)", re.MULTILINE
)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md"))


@pytest.mark.parametrize(("page", "number"), [("", 3), ("scheduler_core", 2)])
def test_the_examples_answer_as_the_readme_says(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    number: int,
) -> None:
    monkeypatch.chdir(ROOT)
    shown = COMMAND.findall((ROOT / page / "README.md").read_text())

    answers = []
    for arguments, _ in shown:
        main(arguments.split())
        answers.append(capsys.readouterr().out.strip())

    assert answers == [answer.strip() for _, answer in shown]
    assert len(shown) == number


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_file_that_the_pages_name_is_there() -> None:
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`([a-z_]+/[\w/.-]+\.\w+)`", page.read_text())
    }

    assert sorted(name for name in named if not (ROOT / name).exists()) == []
