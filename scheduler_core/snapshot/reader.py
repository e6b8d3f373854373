"""Reader of JSON documents that people write, which reports all problems at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.quote import quote_key, quote_value
from scheduler_core.wire.typed import (
    as_array,
    as_integer,
    as_object,
    as_string,
    parse_document,
)

T = TypeVar("T")

#: number of problems listed for a document; the others are only counted
MOST_PROBLEMS = 100


class SnapshotError(SchedulerCoreError, ValueError):
    """Snapshot or job that cannot be read.

    Attributes:
        problems: Texts of all problems: path, expected value, actual value.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Keep the problems in the order of the file."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(slots=True)
class Reader:
    """Reader of one document, with the problems found so far."""

    problems: list[str] = field(default_factory=list)
    #: number of problems beyond `MOST_PROBLEMS`
    unlisted_count: int = 0

    def report(self, path: str, expected: str, found: object) -> None:
        """Add the problem that the value at `path` is not as expected."""
        self.add_problem(f"{path}: expected {expected}, found {quote_value(found)}")

    def add_problem(self, problem: str) -> None:
        """Add a problem; beyond `MOST_PROBLEMS`, only count it."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.unlisted_count += 1

    def finish(self) -> None:
        """Raise if the document has problems.

        Raises:
            SnapshotError: Has all problems.
        """
        if self.unlisted_count:
            self.problems.append(
                f"document: expected no more, found {self.unlisted_count} more"
            )
        if self.problems:
            raise SnapshotError(self.problems)

    def document(
        self,
        text: str,
        version: int,
        *,
        required: Sequence[str],
        optional: Sequence[str],
    ) -> Mapping[str, object]:
        """Return the outermost object of a document of this version.

        Raises:
            SnapshotError: Not JSON, not an object, or another version. Keys of another
                version cannot be checked.
        """
        try:
            root = as_object(parse_document(text, "document"), "document")
            found_version = as_integer(root.get("version"), "version")
        except WireError as error:
            raise SnapshotError([str(error)]) from None
        if found_version != version:
            self.report("version", str(version), found_version)
            self.finish()
        return self.fields(root, "", required=("version", *required), optional=optional)

    def fields(
        self,
        value: object,
        path: str,
        *,
        required: Sequence[str],
        optional: Sequence[str],
    ) -> Mapping[str, object]:
        """Return the fields of an object; missing and unknown keys are problems."""
        fields = self.read(as_object, value, path, default=None)
        if fields is None:
            return {}
        allowed = (*required, *optional)
        for key in fields:
            if key not in allowed and len(self.problems) >= MOST_PROBLEMS:
                self.unlisted_count += 1  # a similar key is not worth its search
            elif key not in allowed:
                similar = get_close_matches(key, allowed, n=1)
                hint = f"did you mean {similar[0]!r}?" if similar else _listed(allowed)
                self.add_problem(f"{_under(path, key)}: no such key, {hint}")
        for key in required:
            if key not in fields:
                self.add_problem(f"{_under(path, key)}: expected, not found")
        return fields

    def get(
        self,
        fields: Mapping[str, object],
        key: str,
        narrow: Callable[[object, str], T],
        *,
        path: str = "",
        default: T,
    ) -> T:
        """Return the field `key`; `default` when it is absent or of another type."""
        if key not in fields:
            return default
        return self.read(narrow, fields[key], _under(path, key), default=default)

    def read(
        self,
        narrow: Callable[[object, str], T],
        value: object,
        path: str,
        *,
        default: T,
    ) -> T:
        """Return `value` narrowed, or `default` when it is of another type."""
        try:
            return narrow(value, path)
        except WireError as error:
            self.add_problem(str(error))
            return default

    def items(self, value: object, path: str) -> Sequence[object]:
        """Return the items of a list; none when `value` is no list."""
        empty: Sequence[object] = ()
        return self.read(as_array, value, path, default=empty)

    def number(
        self,
        fields: Mapping[str, object],
        key: str,
        *,
        path: str = "",
        least: int | None,
        default: T,
    ) -> int | T:
        """Return the integer `key`, at least `least`; `default` when it is absent."""

        def narrow(value: object, where: str) -> int | T:
            integer = as_integer(value, where)
            if least is not None and integer < least:
                raise WireError(where, expected=f"{least} or more", found=integer)
            return integer

        typed_default: int | T = default
        return self.get(fields, key, narrow, path=path, default=typed_default)

    def texts(
        self, fields: Mapping[str, object], key: str, path: str = ""
    ) -> Mapping[str, str]:
        """Return the object `key` of strings, such as labels; empty when absent."""
        empty: Mapping[str, object] = {}
        strings = self.get(fields, key, as_object, path=path, default=empty)
        object_path = _under(path, key)
        return {
            name: self.get(strings, name, as_string, path=object_path, default="")
            for name in strings
        }

    def chips(
        self, value: object, within: Sequence[int] | None, path: str
    ) -> tuple[int, ...]:
        """Return physical ids, ascending; repeated ids are problems.

        Args:
            value: List of ids.
            within: Ids that are allowed, others are problems; None allows all.
            path: Path of the list.
        """
        chips: set[int] = set()
        for index, item in enumerate(self.items(value, path)):
            item_path = f"{path}[{index}]"
            chip = self.read(as_integer, item, item_path, default=None)
            if chip is None:
                continue
            if within is not None and chip not in within:
                listed = ", ".join(map(str, within))
                self.report(item_path, f"one of the chips {listed or '(none)'}", chip)
            elif chip in chips:
                self.report(item_path, "each chip once", chip)
            chips.add(chip)
        return tuple(sorted(chips))


def _listed(allowed: Sequence[str]) -> str:
    return f"expected one of {', '.join(allowed)}" if allowed else "expected none"


def _under(path: str, key: str) -> str:
    key = quote_key(key)
    return f"{path}.{key}" if path else key
