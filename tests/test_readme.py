import re
from collections import Counter
from pathlib import Path

import pytest

from scheduler_core.__main__ import main

ROOT = Path(__file__).parents[1]
#: A command in the README, and the lines that it answers with.
COMMAND = re.compile(
    r"^\$ \S+ -m scheduler_core (.+)\n((?:(?!\$ |```).*\n)+)", re.MULTILINE
)
#: [text](target) or ![text](target); of a target its file and its anchor
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
#: Folders that tools make.
MADE = {"build", "dist", "mutants"}
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            page
            for folder in ROOT.glob("[!.]*/")
            if folder.name not in MADE
            for page in folder.rglob("*.md")
        ),
    ]
)


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
    links = LINK.findall(FENCED.sub("", page.read_text()))

    assert [link for link in links if not leads_somewhere(page, *link)] == []


def leads_somewhere(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    if not anchor or target.suffix != ".md":
        return target.exists()
    return target.exists() and anchor in anchors(target.read_text())


def anchors(text: str) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    before: Counter[str] = Counter()
    made = []
    for heading in HEADING.findall(FENCED.sub("", text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        made.append(f"{slug}-{before[slug]}" if before[slug] else slug)
        before[slug] += 1
    return made


def test_an_anchor_is_made_as_on_the_site() -> None:
    text = "# A `b-c`, d's [e](f.md)\n```\n# no\n```\n## Two\n## Two\n"

    assert anchors(text) == ["a-b-c-ds-e", "two", "two-1"]


def test_a_contributor_reads_six_kilobytes_on_the_first_day() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= 6_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """A page names files from the root of the tree, or from its own folder."""
    named = set(re.findall(r"`([a-z_]+/[\w/.-]+\.\w+)`", page.read_text()))

    assert (
        sorted(
            name
            for name in named
            if not (ROOT / name).exists() and not (page.parent / name).exists()
        )
        == []
    )
