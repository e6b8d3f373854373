"""Parsers of values, lists and records, which make the parser of a whole document."""

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from scheduler_core.documents.reader import Parser, Part, WrongError, read
from scheduler_core.wire.annotations import WireError
from scheduler_core.wire.typed import (
    as_array,
    as_boolean,
    as_integer,
    as_name,
    as_string,
    parse_document,
)

T = TypeVar("T")


def read_json(text: str, parser: Parser[T]) -> T:
    """Return the value of a document in JSON.

    Raises:
        DocumentError: The text is not JSON, or the document is wrong; has all problems.
    """
    return read(text, json_text(parser))


def json_text(parser: Parser[T], most: int | None = None) -> Parser[T]:
    """Return the parser of a text that holds JSON.

    Args:
        parser: How the value in the JSON is read.
        most: Largest number of characters; None for no limit.
    """

    def parse(part: Part) -> T:
        content = text(part)
        if most is not None and len(content) > most:
            raise part.wrong(f"at most {most} characters", len(content))
        try:
            value = parse_document(content, "")
        except WireError as error:
            raise part.wrong(error.expected, error.found) from None
        return parser(part._replace(value=value))

    return parse


def text(part: Part) -> str:
    """Read a text."""
    return part.narrowed(as_string)


def name(part: Part) -> str:
    """Read a text that is not empty."""
    return part.narrowed(as_name)


def boolean(part: Part) -> bool:
    """Read true or false."""
    return part.narrowed(as_boolean)


def matching(is_right: Callable[[str], object], expected: str) -> Parser[str]:
    """Return the parser of a text that a function such as `fullmatch` takes."""

    def take(value: object) -> str | None:
        return value if isinstance(value, str) and is_right(value) else None

    return converted(take, expected)


def converted(convert: Callable[[object], T | None], expected: str) -> Parser[T]:
    """Return the parser of what a function makes of a value; None is a wrong value."""

    def read_value(part: Part) -> T:
        value = convert(part.value)
        if value is None:
            raise part.wrong(expected)
        return value

    return read_value


def whole(
    least: int | None = None, most: int | None = None, noun: str = "a whole number"
) -> Parser[int]:
    """Return the parser of a whole number in a range, of at most 64 bits.

    Args:
        least: Smallest number; None for any.
        most: Largest number; None for any.
        noun: What the number is.
    """
    expected = noun
    if least is not None:
        expected += (
            f" of at least {least}" if most is None else f" from {least} to {most}"
        )

    def read_value(part: Part) -> int:
        value = part.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise part.wrong(expected)
        if not (least is None or least <= value) or not (most is None or value <= most):
            raise part.wrong(expected)
        return part.narrowed(as_integer)

    return read_value


def word(meanings: Mapping[str, T]) -> Parser[T]:
    """Return the parser of a word: its meaning."""

    def meaning(value: object) -> T | None:
        return meanings.get(value) if isinstance(value, str) else None

    return converted(meaning, f"one of {', '.join(meanings)}")


def reference(names: Container[str], noun: str) -> Parser[str]:
    """Return the parser of a name that must be one of `names`."""
    return matching(names.__contains__, noun)


def chip(within: Sequence[int] | None) -> Parser[int]:
    """Return the parser of the physical id of a chip; None allows all from 0."""
    if within is None:
        return whole(0, noun="a chip number")
    listed = ", ".join(map(str, within))
    expected = f"one of the chips {listed or '(none)'}"
    if len(within) > 1 and tuple(within) == tuple(range(len(within))):
        expected = f"a chip from 0 to {within[-1]}"

    def take(value: object) -> int | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return (
            value if isinstance(value, int) and is_whole and value in within else None
        )

    return converted(take, expected)


def chips(within: Sequence[int] | None) -> Parser[tuple[int, ...]]:
    """Return the parser of a list of different chips, which come ascending."""
    different = distinct(chip(within), "chip")
    return lambda part: tuple(sorted(different(part)))


def listing(item: Parser[T]) -> Parser[tuple[T, ...]]:
    """Return the parser of a list, which leaves out wrong items."""

    def read_items(part: Part) -> Iterator[T]:
        for position, value in enumerate(part.narrowed(as_array)):
            try:
                yield item(part.under(position, value))
            except WrongError:
                continue

    return lambda part: tuple(read_items(part))


def distinct(
    item: Parser[T], noun: str, key: Callable[[T], Hashable] = lambda value: value
) -> Parser[tuple[T, ...]]:
    """Return the parser of a list of items that differ.

    Args:
        item: How an item is read.
        noun: What must differ.
        key: Returns what must differ.
    """

    def read_items(part: Part) -> tuple[T, ...]:
        return listing(once(item, noun, key))(part)  # each list remembers its own

    return read_items


def once(
    item: Parser[T], noun: str, key: Callable[[T], Hashable] = lambda value: value
) -> Parser[T]:
    """Return a parser that takes each value only once; see `distinct` for lists."""
    earlier: set[Hashable] = set()

    def read_value(part: Part) -> T:
        value = item(part)
        found = key(value)
        if found in earlier:
            raise part.wrong(f"each {noun} once", found)
        earlier.add(found)
        return value

    return read_value


def texts(known: Mapping[str, Parser[str]]) -> Parser[Mapping[str, str]]:
    """Return the parser of an object of strings, such as labels.

    Args:
        known: {key: parser of its value}; any string is right for another key.
    """

    def read_texts(part: Part) -> Mapping[str, str]:
        fields = part.all_fields()
        return {
            key: fields.need(key, known.get(key, text), "") for key in fields.values
        }

    return read_texts


class _Field(NamedTuple):
    parser: Parser[object]
    is_required: bool
    #: value if it is wrong or, unless required, absent; `...` for none
    otherwise: object


def required(parser: Parser[object], otherwise: object = ...) -> _Field:
    """Return a field of a record that must be there.

    Args:
        parser: How its value is read.
        otherwise: Value if it is wrong, so that the rest of the record can be used.
    """
    return _Field(parser, is_required=True, otherwise=otherwise)


def optional(parser: Parser[object], default: object = None) -> _Field:
    """Return a field of a record, with its default."""
    return _Field(parser, is_required=False, otherwise=default)


def record(build: Callable[..., T], /, **fields: _Field) -> Parser[T]:
    """Return the parser of an object: `build` gets the values by their keys."""

    def read_record(part: Part) -> T:
        given, values = part.fields(*fields), dict[str, object]()
        for key, (parser, is_required, otherwise) in fields.items():
            take = given.need if is_required else given.get
            try:
                values[key] = take(key, parser, otherwise)
            except WrongError:
                continue
        if len(values) < len(fields):
            raise WrongError
        return build(**values)

    return read_record


def versioned(version: int, parser: Parser[T]) -> Parser[T]:
    """Return the parser of a document of this version.

    Keys of another version cannot be checked, so nothing else is reported of one.
    """

    def read_version(part: Part) -> T:
        found = part.all_fields().at("version")
        if type(found.value) is not int or found.value != version:
            raise found.wrong(str(version))
        return parser(part)

    return read_version
