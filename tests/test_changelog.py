"""CHANGELOG.md has a line for each entry, and tells of nothing that nobody ever had."""

import re
from pathlib import Path

VERSIONS = (Path(__file__).parents[1] / "CHANGELOG.md").read_text().split("\n## ")[1:]
ENTRIES = [line for line in "\n".join(VERSIONS).splitlines() if line.startswith("- ")]
#: They tell how something was. Before the oldest version nothing was.
OF_THE_PAST = re.compile(
    r"no longer|any ?more|\bbefore, |\bused to |\bformerly|\bat first\b|\bso far\b"
)


def test_an_entry_is_one_line_of_at_most_160_characters() -> None:
    wrapped = [line for line in "\n".join(VERSIONS).splitlines() if line[:1] == " "]

    assert wrapped == []
    assert [entry for entry in ENTRIES if len(entry) > 160] == []
    assert len(ENTRIES) > 100


def test_no_entry_of_the_oldest_version_tells_how_something_was() -> None:
    oldest = VERSIONS[-1].splitlines()

    assert [line for line in oldest if OF_THE_PAST.search(line)] == []


def test_each_entry_stands_once() -> None:
    told = [entry.partition(" ([")[0].rstrip(".").casefold() for entry in ENTRIES]

    assert sorted({each for each in told if told.count(each) > 1}) == []
