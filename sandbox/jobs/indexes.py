"""Sets of completion indexes as a Job's status writes them: `0,2-5`.

A module of its own: the pure step both reads and writes them.
"""

from collections.abc import Iterable


def parse(text: str, count: int) -> frozenset[int]:
    """Return the indexes in a text.

    Args:
        text: Empty for none.
        count: Indexes of the Job; higher ones are left out.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first) + 1, count)))
    return frozenset(found)


def render(indexes: Iterable[int]) -> str:
    """Return the text of a set; three or more in a row are written as a range."""
    parts: list[str] = []
    rows: list[list[int]] = []
    for index in sorted(indexes):
        if rows and rows[-1][-1] == index - 1:
            rows[-1].append(index)
        else:
            rows.append([index])
    for row in rows:
        is_range = len(row) > 2
        parts += [f"{row[0]}-{row[-1]}"] if is_range else map(str, row)
    return ",".join(parts)
