"""What to say of JSON that does not decode: where, what was expected, and found."""

import re

import msgspec

#: What msgspec raises for bytes that are not what was expected: also for text that is
#: not UTF-8, and for nesting without end.
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: The most of msgspec's own words that are repeated. Unit: characters.
_LONGEST = 300
_TYPES = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$?([^`]*)`)?")


def undecodable(where: str, error: Exception) -> str:
    """Return a sentence about bytes that do not decode.

    Args:
        where: What they are, such as `GET /api/v1/pods` or a key of a document.
        error: One of `UNDECODABLE`.
    """
    if isinstance(error, RecursionError):
        return f"{where}: expected JSON of fewer levels, found more than can be read"
    text = str(error)[:_LONGEST]
    types = _TYPES.fullmatch(text)
    if types:
        expected, found, path = types.groups(default="")
        return f"{where}{path}: expected {expected}, found {found}"
    return f"{where}: expected JSON, found: {text}"
