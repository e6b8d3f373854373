"""The table of promises in tests/e2e/README.md, against marks and pages."""

import re
from pathlib import Path

import pytest

from tests.parts import marks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tests" / "e2e" / "README.md"
#: promise, words, page, test
ROW = re.compile(
    r'^\| `([\w-]+)` \| "(.+)" \(\[\w+\]\((.+)\)\) \| `(.+)` \|$', re.MULTILINE
)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
#: What a section promises, in bold at the head of its points.
BOLD = re.compile(r"^\* \*\*(.+?)\*\*", re.MULTILINE)


def test_the_table_has_the_promise_and_the_test_of_each_mark() -> None:
    rows = [(promise, test) for promise, _, _, test in ROWS]

    assert sorted(rows) == sorted(marks.core(ROOT, "tests/e2e"))
    assert len(rows) == len({promise for promise, _ in rows})


def test_each_line_of_the_table_is_a_row() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## What the core holds")[2]
    lines = re.findall(r"^\| `.*$", section.partition("\n## ")[0], re.MULTILINE)

    assert len(lines) == len(ROWS) > 10


@pytest.mark.parametrize(
    ("words", "page"), [(words, page) for _, words, page, _ in ROWS]
)
def test_each_promise_stands_on_its_page(words: str, page: str) -> None:
    text = (PAGE.parent / page).read_text(encoding="utf-8")

    assert words in text.replace("**", "")


def test_each_promise_of_the_page_about_reliability_is_in_the_table() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    section = text.partition("## What is promised")[2].partition("\n## ")[0]

    promised = BOLD.findall(section)

    assert len(promised) == section.count("\n* ") > 3
    assert [each for each in promised if each not in {row[1] for row in ROWS}] == []


def test_a_mark_that_is_no_decorator_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("pytestmark = pytest.mark.core('race')\n")

    with pytest.raises(ValueError, match="no decorator of a test"):
        marks.core(tmp_path, ".")


def test_marks_of_parameters_count(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.core('x'))])"
        "\ndef test_a(): ...\n"
        "@pytest.mark.core('y')\nasync def test_b(): ...\ndef test_c(): ...\n"
    )

    assert marks.core(tmp_path, ".") == [
        ("x", "test_a.py::test_a"),
        ("y", "test_a.py::test_b"),
    ]
