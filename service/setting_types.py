"""Conversion of texts and YAML values to the types of settings."""

import datetime as dt
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from service.quote import quote_value

#: Bounds of numbers and texts; no real setting exceeds them.
_MAX_BITS = 256
_MAX_NUMBER_CHARACTERS = 100
_MAX_TEXT_CHARACTERS = 4096
_TRUE_WORDS = frozenset({"true", "1", "yes", "on"})
_FALSE_WORDS = frozenset({"false", "0", "no", "off"})


def parse_value(kind: object, value: object) -> object:
    """Return the value converted to the type of its setting.

    Args:
        kind: str, bool, int, float or Path, or one of them or None.
        value: From a flag, the environment or YAML.

    Raises:
        ValueError: The value has another type; the text says which type was expected.
    """
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    parse = _PARSERS.get(kind)
    if parse is None:
        raise TypeError(f"a setting cannot be of type {kind}")
    return parse(value)


def _scalar_text(value: object) -> str:
    """Return the text of a scalar; "" for a list, a mapping, or an oversized scalar."""
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return ""
    text = str(value) if isinstance(value, (str, int, float)) else ""
    return text if len(text) <= _MAX_NUMBER_CHARACTERS else ""


def _whole_number(value: object) -> int:
    text = _scalar_text(value)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        return int(text)
    raise ValueError("a whole number")


def _number(value: object) -> float:
    try:
        number = float(_scalar_text(value))
    except ValueError:
        raise ValueError("a number") from None
    if number - number != 0:  # infinite, or not a number
        raise ValueError("a number")
    return number


def _boolean(value: object) -> bool:
    text = _scalar_text(value).lower()
    if text in _TRUE_WORDS | _FALSE_WORDS:
        return text in _TRUE_WORDS
    raise ValueError("true or false")


def _text(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, (bool, int, float, dt.date)):
        text = _scalar_text(value) or quote_value(value)
    else:
        raise ValueError("one value")  # noqa: TRY004  # the setting is wrong, not a type
    if "\0" in text or len(text) > _MAX_TEXT_CHARACTERS:
        raise ValueError(
            f"a text of at most {_MAX_TEXT_CHARACTERS} characters, without NUL"
        )
    return text


def _path(value: object) -> Path:
    if text := _text(value):
        return Path(text)
    raise ValueError("a path")


_PARSERS: Mapping[object, Callable[[object], object]] = {
    str: _text,
    bool: _boolean,
    int: _whole_number,
    float: _number,
    Path: _path,
}


def is_bool_word(word: str) -> bool:
    """Return whether a word means true or false."""
    return word.lower() in _TRUE_WORDS | _FALSE_WORDS
