"""The check of `/metrics` finds each way to break a convention.

Pages and programs that no test of this suite runs name only metrics that exist.
"""

import re
from pathlib import Path

import pytest

from tests.support import metric_pages

ROOT = Path(__file__).parents[1]
PAGE = """\
| metric | labels | what it says |
|---|---|---|
| `ascend_x_things_total` | `result`: `done`, `failed` | things |
| `ascend_x_free_bytes` | `chip` | bytes |
| `ascend_x_wait_seconds` | | waits |
"""
GOOD = """\
# HELP process_open_fds Number of open files.
# TYPE process_open_fds gauge
process_open_fds 3.0
# HELP ascend_x_things_total Things by result.
# TYPE ascend_x_things_total counter
ascend_x_things_total{result="done"} 1.0
ascend_x_things_total{result="failed"} 0.0
# HELP ascend_x_free_bytes Bytes that are free.
# TYPE ascend_x_free_bytes gauge
ascend_x_free_bytes{chip="0"} 1.0
# HELP ascend_x_wait_seconds Waits.
# TYPE ascend_x_wait_seconds histogram
ascend_x_wait_seconds_bucket{le="+Inf"} 1.0
ascend_x_wait_seconds_count 1.0
ascend_x_wait_seconds_sum 1.0
"""


def found(text: str, page: str = PAGE) -> list[str]:
    return metric_pages.problems(text, page, "ascend_x")


def renamed(old: str, new: str) -> list[str]:
    """The problems with another name, on the page too."""
    return found(GOOD.replace(old, new), PAGE.replace(old, new))


def test_good_metrics_have_no_problem() -> None:
    assert found(GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("things_total", "things", "a counter and its name do not fit"),
        ("free_bytes", "free_total", "a gauge and its name do not fit"),
        ("free_bytes", "free_created", "ends as the sample of another type"),
        ("free_bytes", "free_kib", "not in a base unit"),
        ("free_bytes", "bytes_free", "the unit is not at its end"),
        ("free_bytes", "freeBytes", "is not in lower case with single underscores"),
        ("wait_seconds", "wait", "a histogram without a base unit"),
        ("`chip`", "`job`", "chip is only in one of both"),
        ("chip", "job", "job is no name of a label"),
    ],
)
def test_a_name_that_breaks_a_convention_is_found(
    old: str, new: str, problem: str
) -> None:
    assert problem in [text.partition(": ")[2] for text in renamed(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (" Waits.", " ", "ascend_x_wait_seconds: no sentence says what it is"),
        (" Waits.", " waits", "ascend_x_wait_seconds: no sentence says what it is"),
        ("bytes gauge", "bytes untyped", "ascend_x_free_bytes: is a untyped"),
        ("process_open_fds", "python_info", "python_info: of no program"),
        ("free_bytes", "new_bytes", "ascend_x_new_bytes: not on the page"),
        ("free_bytes", "new_bytes", "ascend_x_free_bytes: only on the page"),
        (
            'result="failed"',
            'result="lost"',
            "ascend_x_things_total: result: ['failed', 'lost'] only in one of both",
        ),
        (
            'ascend_x_things_total{result="failed"} 0.0\n',
            "",
            "ascend_x_things_total: result: ['failed'] only in one of both",
        ),
    ],
)
def test_metrics_that_differ_from_the_page_are_found(
    old: str, new: str, problem: str
) -> None:
    assert problem in found(GOOD.replace(old, new))


def test_a_counter_whose_values_do_not_show_before_they_come_is_found() -> None:
    text = "".join(
        line for line in GOOD.splitlines(keepends=True) if "{result=" not in line
    )

    assert found(text) == ["ascend_x_things_total: result shows no value yet"]


@pytest.mark.parametrize("program", ["ascend_agent", "ascend_extender"])
def test_pages_and_programs_name_only_metrics_that_exist(program: str) -> None:
    page = (ROOT / program.removeprefix("ascend_") / "README.md").read_text()
    known = metric_pages.documented(page, program).keys()
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / "daemonset").rglob("*") if path.is_file()),
        *(
            path
            for folder in ("benchmarks", "sandbox", "tests/e2e")
            for path in (ROOT / folder).rglob("*.py")
        ),
    ]

    named = {
        re.sub("_(bucket|count|sum)$", "", name)
        for path in files
        for name in re.findall(
            rf"\b{program}_[a-z_]*[a-z]\b", path.read_text(encoding="utf-8")
        )
    }

    assert named - known == set()
    assert named
