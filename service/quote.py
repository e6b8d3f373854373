"""Wrong values in error messages: bounded in length, and printable.

Values come from files, requests and the environment. They can have a megabyte, a
thousand levels, or half a character. A module of its own: most parsers of the project
quote values, and few need anything else of `service`.
"""

import reprlib

#: Longest part of a value that an error repeats; characters.
_MAX_CHARACTERS = 60
#: Whole numbers up to this many bits are shown in full.
_MAX_BITS = 256


class _Repr(reprlib.Repr):
    """`repr` that is bounded in length and depth, for numbers too."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 2 * _MAX_CHARACTERS

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002  # reprlib's signature
        if x.bit_length() > _MAX_BITS:  # its digits may be more than Python writes
            return f"a whole number of {x.bit_length()} bits"
        return repr(x)


_REPR = _Repr()


def quote_value(value: object) -> str:
    """Return the value for an error message, of at most 61 characters."""
    text = _REPR.repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def quote_key(key: object) -> str:
    """Return a readable key unchanged, and any other key quoted as a value."""
    readable = (
        isinstance(key, str) and len(key) <= _MAX_CHARACTERS and key.isprintable()
    )
    return str(key) if readable else quote_value(key)
