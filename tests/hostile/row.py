"""One row of the table of parsers, and the law that holds for each of them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.hostile.mutations import LEAVES, YAML_LEAVES

#: The longest text of one problem. Unit: characters.
LONGEST_PROBLEM = 1_000
#: The most lines that one document's errors may have.
MOST_PROBLEMS = 120

#: What an error of ours says. Where is the text before it.
OURS = re.compile(r"\S.*expected .+|.*no such key, .+", re.DOTALL)


def text_of(content: bytes) -> str:
    """As a hand that writes no UTF-8 would give it: half surrogates included."""
    return content.decode(errors="surrogateescape")


def dumped(document: object) -> bytes:
    """A document as JSON."""
    return json.dumps(document).encode()


def lines(error: Exception) -> tuple[str, ...]:
    """The problems of an error that has one in each line."""
    return tuple(str(error).split("\n"))


def _problems(error: Exception) -> tuple[str, ...]:
    return tuple(getattr(error, "problems", (str(error),)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One parser of something that comes from outside."""

    name: str
    #: The entry point: takes the bytes as they came.
    read: Callable[[bytes], object]
    #: Valid documents; `read` takes each.
    seeds: tuple[bytes, ...]
    #: What it may raise; none: it takes whatever comes, and says so in its answer.
    errors: tuple[type[Exception], ...] = ()
    #: What each problem's text looks like.
    says: re.Pattern[str] = OURS
    #: The problems of an error; several where a person writes the document.
    problems: Callable[[Exception], tuple[str, ...]] = _problems
    #: What must be as before after an error.
    state: Callable[[], object] = lambda: None
    #: Whether it takes its time, so that `make test` asks it less.
    is_slow: bool = False
    #: What is put into a document; YAML has more than JSON.
    leaves: Mapping[str, Any] = field(default_factory=lambda: LEAVES)


#: {name: (entry point, seeds)}
Table: TypeAlias = Mapping[str, tuple[Callable[[bytes], object], Sequence[bytes]]]


def rows(
    table: Table,
    *errors: type[Exception],
    **more: Any,
) -> tuple[Row, ...]:
    """Return rows that differ in name, entry point and seeds.

    Args:
        table: The rest of each row.
        errors: What each may raise.
        more: Further columns, the same in each row.
    """
    return tuple(
        Row(name=name, read=read, seeds=tuple(seeds), errors=errors, **more)
        for name, (read, seeds) in table.items()
    )


#: For documents in YAML.
OF_YAML: Mapping[str, Any] = {**LEAVES, **YAML_LEAVES}


class LawError(AssertionError):
    """A parser has broken the law."""


def check(row: Row, content: bytes) -> bool:
    """Have a parser read something; whether it took it.

    Raises:
        LawError: It raised what it may not, said nothing useful, or was left half
            changed.
    """
    before = row.state()
    try:
        row.read(content)
    except row.errors as error:
        problems = row.problems(error)
        if row.state() != before:
            raise LawError(f"{row.name}: half applied, then: {error}") from error
    except Exception as error:
        shown = content if len(content) < 500 else content[:500] + b" and more"
        raise LawError(f"{row.name}: {type(error).__name__} of {shown!r}") from error
    else:
        return True
    _check_problems(row, problems)
    return False


def _check_problems(row: Row, problems: tuple[str, ...]) -> None:
    if not 1 <= len(problems) <= MOST_PROBLEMS:
        raise LawError(f"{row.name}: {len(problems)} problems")
    for text in problems:
        if len(text) > LONGEST_PROBLEM:
            raise LawError(f"{row.name}: {len(text)} characters: {text[:200]}")
        if not row.says.fullmatch(text):
            raise LawError(f"{row.name}: does not say what was expected: {text}")
        text.encode()  # a log, an event and a terminal can have it
