"""Reader of a document: its parts, their fields, and all problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce
from typing import Any, NamedTuple, TypeAlias, TypeVar

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.quote import quote_key, quote_value
from scheduler_core.wire.typed import as_object

T = TypeVar("T")
D = TypeVar("D")

#: keys and positions from the root of the document to one of its parts
Keys: TypeAlias = tuple[str | int, ...]
#: function from a part to its value, which raises `WrongError` for a wrong part
Parser: TypeAlias = Callable[["Part"], T]

#: number of problems listed for a document; the others are only counted
MOST_PROBLEMS = 100
#: longest key for which a similar one is searched, in characters
_LONGEST_KEY = 60
#: place of a problem with the document as a whole
_ROOT = "document"


class DocumentError(SchedulerCoreError, ValueError):
    """Document that breaks its format.

    Attributes:
        problems: Texts of the problems, in the order of reading. If there are more than
            `MOST_PROBLEMS`, the last text counts the others.
        places: Keys of the part of each problem.
        count: Number of problems, with those that are only counted.
    """

    def __init__(
        self, problems: Sequence[tuple[Keys, str]], unlisted_count: int = 0
    ) -> None:
        self.count = len(problems) + unlisted_count
        if unlisted_count:
            more = f"expected no more, found {unlisted_count} more"
            problems = (*problems, ((), more))
        self.places = tuple(keys for keys, _ in problems)
        self.problems = tuple(f"{_place(keys)}: {text}" for keys, text in problems)
        super().__init__("\n".join(self.problems))


class WrongError(Exception):
    """Part without a value, because it is wrong; its problem is reported already."""


@dataclass(slots=True)
class _Problems:
    is_null_absent: bool
    listed: list[tuple[Keys, str]] = field(default_factory=list)
    unlisted_count: int = 0

    def add(self, keys: Keys, text: str) -> None:
        if self.is_full:
            self.unlisted_count += 1
        else:
            self.listed.append((keys, text))

    @property
    def is_full(self) -> bool:
        return len(self.listed) >= MOST_PROBLEMS


class Part(NamedTuple):
    """Part of a document: its value, and its place."""

    value: object
    keys: Keys
    problems: _Problems

    def wrong(self, expected: str, found: object = ...) -> WrongError:
        """Report that the part is not as expected; return the error to raise.

        Args:
            expected: Description of a right value.
            found: What is wrong; by default the value.
        """
        value = self.value if found is ... else found
        quoted = "nothing" if value is None else quote_value(value)
        return self.report(f"expected {expected}, found {quoted}")

    def report(self, problem: str) -> WrongError:
        """Report a problem of the part; return the error to raise."""
        self.problems.add(self.keys, problem)
        return WrongError()

    def under(self, key: str | int, value: object) -> "Part":
        """Return the part with this value below `key`."""
        return Part(value, (*self.keys, key), self.problems)

    def all_fields(self) -> "Fields":
        """Return the fields of an object, which may have any key."""
        return Fields(self, self.narrowed(as_object))

    def narrowed(self, narrow: Callable[[object, str], T]) -> T:
        """Return the value as a function of `scheduler_core.wire.typed` takes it."""
        try:
            return narrow(self.value, "")
        except WireError as error:
            raise self.wrong(error.expected) from None

    def fields(self, *names: str) -> "Fields":
        """Return the fields of an object; keys that are not in `names` are problems."""
        fields = self.all_fields()
        for key in fields.values:
            if key not in names:
                shown = key if isinstance(key, str) else quote_value(key)
                is_searched = len(shown) <= _LONGEST_KEY and not self.problems.is_full
                similar = get_close_matches(shown, names, 1) if is_searched else []
                hint = f"did you mean {similar[0]!r}?" if similar else _listed(names)
                self.problems.add((*self.keys, shown), f"no such key, {hint}")
        return fields


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of an object."""

    part: Part
    #: {key: value}; in YAML a key can be of any type
    values: Mapping[Any, object]

    def at(self, key: str) -> Part:
        """Return the part below a key; its value is None if the key is absent."""
        return self.part.under(key, self.values.get(key))

    def get(self, key: str, parser: Parser[T], default: D) -> T | D:
        """Return the value of a key, or `default` if it is absent or wrong."""
        is_null_absent = self.part.problems.is_null_absent
        if key not in self.values or (is_null_absent and self.values[key] is None):
            return default
        return self.need(key, parser, default)

    def need(self, key: str, parser: Parser[T], otherwise: D = ...) -> T | D:  # type: ignore[assignment]
        """Return the value of a key that must be there.

        Args:
            key: Its name.
            parser: How its value is read.
            otherwise: Value if it is absent or wrong.

        Raises:
            WrongError: It is absent or wrong, and there is no `otherwise`.
        """
        try:
            return parser(self.at(key))
        except WrongError:
            if otherwise is ...:
                raise
            return otherwise


def read(value: object, parser: Parser[T], *, is_null_absent: bool = False) -> T:
    """Return the value of a document.

    Args:
        value: What JSON or YAML holds.
        parser: How the document is read.
        is_null_absent: Whether a key with null counts as absent, as in YAML that
            people write.

    Raises:
        DocumentError: The document is wrong; has all problems.
    """
    problems = _Problems(is_null_absent)
    try:
        result = parser(Part(value, (), problems))
    except WrongError:
        pass
    else:
        if not problems.listed:
            return result
    raise DocumentError(problems.listed, problems.unlisted_count)


def read_partly(
    value: object, parser: Parser[T], *, is_null_absent: bool = False
) -> tuple[T, tuple[str, ...]]:
    """Return the value of what is right in a document, and the problems of the rest.

    Args:
        value: What JSON or YAML holds.
        parser: How the document is read; has a value for each part that may be wrong.
        is_null_absent: As for `read`.

    Raises:
        WrongError: The parser has no value for the document as a whole.
    """
    problems = _Problems(is_null_absent)
    result = parser(Part(value, (), problems))
    if not problems.listed:
        return result, ()
    return result, DocumentError(problems.listed, problems.unlisted_count).problems


def _listed(names: Sequence[str]) -> str:
    return f"expected one of {', '.join(names)}" if names else "expected none"


def _place(keys: Keys) -> str:
    return reduce(_below, keys, "") or _ROOT


def _below(place: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{place}[{key}]"
    return f"{place}.{quote_key(key)}" if place else quote_key(key)
