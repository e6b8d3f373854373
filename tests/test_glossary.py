"""No class of agent or extender has a name that docs/glossary.md retires."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "glossary.md"


def test_no_class_has_a_retired_name() -> None:
    table = PAGE.read_text().partition("## Words we no longer use")[2]
    rows = [row for row in table.splitlines() if row.startswith("| ")]
    retired = {
        name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }
    classes = {
        name: str(path.relative_to(ROOT))
        for package in ("agent", "extender")
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    }

    assert {name: classes[name] for name in retired & classes.keys()} == {}
    assert len(retired) > 25


def test_each_word_stands_once() -> None:
    words = re.findall(r"^\| ([^|]+?) \| [^|]+ \| `", PAGE.read_text(), re.MULTILINE)

    assert sorted({word for word in words if words.count(word) > 1}) == []
    assert len(words) > 80
