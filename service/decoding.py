"""Error messages for JSON that does not decode: where, expected, found.

A module of its own: clients, endpoints and the journal report malformed JSON in the
same words.
"""

import re

import msgspec

#: Exceptions of msgspec for malformed JSON, for text that is not UTF-8, and for JSON
#: with too many levels.
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: Longest part of msgspec's message that is repeated; characters.
_MESSAGE_CHARACTERS = 300
_TYPE_MISMATCH = re.compile(r"Expected `([^`]+)`, got `([^`]+)`(?: - at `\$?([^`]*)`)?")


def describe_decode_error(location: str, error: Exception) -> str:
    """Return a sentence about JSON that does not decode.

    Args:
        location: Source of the JSON, such as `GET /api/v1/pods` or a key of a document.
        error: One of `DECODE_ERRORS`.
    """
    if isinstance(error, RecursionError):
        return f"{location}: expected JSON of fewer levels, found more than can be read"
    text = str(error)[:_MESSAGE_CHARACTERS]
    mismatch = _TYPE_MISMATCH.fullmatch(text)
    if mismatch:
        expected, actual, path = mismatch.groups(default="")
        return f"{location}{path}: expected {expected}, found {actual}"
    return f"{location}: expected JSON, found: {text}"
