"""Reading a document that people write: all that is wrong with it, said at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.shown import shown, shown_key
from scheduler_core.wire.typed import (
    as_array,
    as_integer,
    as_object,
    as_string,
    parse_document,
)

T = TypeVar("T")

#: Problems of one document that are told one by one: more nobody reads at once.
MOST_PROBLEMS = 100


class SnapshotError(SchedulerCoreError, ValueError):
    """A snapshot or a job that cannot be read.

    Attributes:
        problems: Each thing that is wrong: where, what was expected, what was found.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        """Remember all of them, in the order of the file."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(slots=True)
class Reader:
    """Reads one document and remembers everything that is wrong with it."""

    problems: list[str] = field(default_factory=list)
    #: how many more there were
    more: int = 0

    def say(self, path: str, expected: str, found: object) -> None:
        """Remember that something else was expected at `path`."""
        self.note(f"{path}: expected {expected}, found {shown(found)}")

    def note(self, problem: str) -> None:
        """Remember one thing that is wrong; of too many, that there are more."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more += 1

    def finish(self) -> None:
        """Raise if anything was wrong.

        Raises:
            SnapshotError: With all of it.
        """
        if self.more:
            self.problems.append(f"document: expected no more, found {self.more} more")
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
        """The outermost object of a document of this version.

        Raises:
            SnapshotError: Not JSON, not an object, or another version, in which
                nothing else can be told to be wrong.
        """
        try:
            root = as_object(parse_document(text, "document"), "document")
            found = as_integer(root.get("version"), "version")
        except WireError as error:
            raise SnapshotError([str(error)]) from None
        if found != version:
            self.say("version", str(version), found)
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
        """The fields of an object: those that are demanded, none that is unknown."""
        fields = self.read(as_object, value, path, default=None)
        if fields is None:
            return {}
        known = (*required, *optional)
        for key in fields:
            if key not in known and len(self.problems) >= MOST_PROBLEMS:
                self.more += 1  # without looking for what was meant
            elif key not in known:
                close = get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else _listed(known)
                self.note(f"{_under(path, key)}: no such key, {hint}")
        for key in required:
            if key not in fields:
                self.note(f"{_under(path, key)}: expected, not found")
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
        """The field `key`, or `default` when it is absent or of the wrong type."""
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
        """`value` of the wanted type, or `default` when it is of another."""
        try:
            return narrow(value, path)
        except WireError as error:
            self.note(str(error))
            return default

    def items(self, value: object, path: str) -> Sequence[object]:
        """The items of a list, or none."""
        nothing: Sequence[object] = ()
        return self.read(as_array, value, path, default=nothing)

    def number(
        self,
        fields: Mapping[str, object],
        key: str,
        *,
        path: str = "",
        least: int | None,
        default: T,
    ) -> int | T:
        """The whole number `key`, from `least` on; `default` when it is absent."""

        def narrow(value: object, where: str) -> int | T:
            found = as_integer(value, where)
            if least is not None and found < least:
                raise WireError(where, expected=f"{least} or more", found=found)
            return found

        otherwise: int | T = default
        return self.get(fields, key, narrow, path=path, default=otherwise)

    def texts(
        self, fields: Mapping[str, object], key: str, path: str = ""
    ) -> Mapping[str, str]:
        """The object `key` of texts by text, as labels are; empty when absent."""
        nothing: Mapping[str, object] = {}
        found = self.get(fields, key, as_object, path=path, default=nothing)
        where = _under(path, key)
        return {
            name: self.get(found, name, as_string, path=where, default="")
            for name in found
        }

    def chips(
        self, value: object, within: Sequence[int] | None, path: str
    ) -> tuple[int, ...]:
        """Physical ids, ascending: each in `within` (None is any), none twice."""
        chips: set[int] = set()
        for index, item in enumerate(self.items(value, path)):
            where = f"{path}[{index}]"
            chip = self.read(as_integer, item, where, default=None)
            if chip is None:
                continue
            if within is not None and chip not in within:
                listed = ", ".join(map(str, within))
                self.say(where, f"one of the chips {listed or '(none)'}", chip)
            elif chip in chips:
                self.say(where, "each chip once", chip)
            chips.add(chip)
        return tuple(sorted(chips))


def _listed(known: Sequence[str]) -> str:
    return f"expected one of {', '.join(known)}" if known else "expected none"


def _under(path: str, key: str) -> str:
    key = shown_key(key)
    return f"{path}.{key}" if path else key
