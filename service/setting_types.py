"""What somebody said, as a value of the type that a setting has."""

import datetime as dt
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path

from service.quote import shown

#: What a number or a text may have; more is none that anybody means.
_MOST_BITS = 256
_LONGEST_NUMBER = 100
_LONGEST_TEXT = 4096
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def parsed(kind: object, value: object) -> object:
    """Return a value of the wanted type.

    Args:
        kind: str, bool, int, float or Path, or one of them or None.
        value: As a flag, the environment or YAML gave it.

    Raises:
        ValueError: It is not one; the text says what was expected.
    """
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not types.NoneType)
    parse = _PARSERS.get(kind)
    if parse is None:
        raise TypeError(f"a setting cannot be of type {kind}")
    return parse(value)


def _plain(value: object) -> str:
    """Return a value that stands alone as text; "" for anything larger."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return ""
    text = str(value) if isinstance(value, (str, int, float)) else ""
    return text if len(text) <= _LONGEST_NUMBER else ""


def _whole_number(value: object) -> int:
    text = _plain(value)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        return int(text)
    raise ValueError("a whole number")


def _number(value: object) -> float:
    try:
        number = float(_plain(value))
    except ValueError:
        raise ValueError("a number") from None
    if number - number != 0:  # infinite, or not a number
        raise ValueError("a number")
    return number


def _truth(value: object) -> bool:
    text = _plain(value).lower()
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError("true or false")


def _text(value: object) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, (bool, int, float, dt.date)):
        text = _plain(value) or shown(value)
    else:
        raise ValueError("one value")  # noqa: TRY004  # what was said is wrong
    if "\0" in text or len(text) > _LONGEST_TEXT:
        raise ValueError(f"a text of at most {_LONGEST_TEXT} characters, without NUL")
    return text


def _path(value: object) -> Path:
    if text := _text(value):
        return Path(text)
    raise ValueError("a path")


_PARSERS: Mapping[object, Callable[[object], object]] = {
    str: _text,
    bool: _truth,
    int: _whole_number,
    float: _number,
    Path: _path,
}


def is_truth(word: str) -> bool:
    """Tell whether a word says true or false."""
    return word.lower() in _TRUE | _FALSE
