"""The table of the rules of pairing names tests that exist, and all rules."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS / "pairing-rules.md"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_table_names_is_there() -> None:
    named = NAMED.findall(PAGE.read_text())

    gone = [
        f"{path}::{name}"
        for path, name in named
        if f"def {name}(" not in (TESTS / path).read_text()
    ]

    assert gone == []
    assert len(named) > 100


def test_every_rule_has_demands_and_every_demand_a_test() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]

    rules = [int(section.partition(".")[0]) for section in sections]
    rows = [
        row
        for section in sections
        for row in section.splitlines()
        if row.startswith("| ") and row != "| demand | test |"
    ]

    assert rules == list(range(1, 17))
    assert [row for row in rows if not NAMED.search(row)] == []
