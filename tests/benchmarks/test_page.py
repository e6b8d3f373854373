"""docs/performance.md names all parts of the benchmarks, and each figure has a date."""

import re
from pathlib import Path

from benchmarks.__main__ import BY_NAME, OPTIONAL, PARTS

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()


def test_the_page_names_each_part_and_no_other() -> None:
    (named,) = re.findall(r"`python -m benchmarks PART` runs one part \((.+?)\)", PAGE)

    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(
        (*PARTS, *OPTIONAL, *BY_NAME)
    )


def test_each_figure_says_when_and_on_what_it_was_measured() -> None:
    table = PAGE.partition("| figure | goal | measured | when, on which machine |\n")[2]
    rows = table.partition("\n\n")[0].splitlines()[1:]
    dated = re.compile(r" \| 20\d\d-\d\d-\d\d, (?:M|busy)(?: \(.+\))? \|")

    assert [row for row in rows if not dated.search(row)] == []
    assert len(rows) > 50
