"""Quotes of wrong values for error messages: bounded, and always valid text.

The value may be a megabyte of text, a thousand levels deep, or half a character.
A module of its own: every format and `kube` quote values in errors.
"""

import reprlib

#: largest length of a quote, in characters
_LONGEST = 120
#: integers of up to this many bits are quoted in full
_MOST_BITS = 256


class _Repr(reprlib.Repr):
    """Representation bounded in length and depth, also for numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = _LONGEST
        self.maxlist = self.maxtuple = self.maxdict = 8

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002  # reprlib's signature
        if x.bit_length() > _MOST_BITS:  # its digits may be more than Python writes
            return f"a whole number of {x.bit_length()} bits"
        return repr(x)


_REPR = _Repr()


def quote_value(value: object) -> str:
    """Return the quote of a value: its `repr`, cut where that is long."""
    text = _REPR.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def quote_key(key: str) -> str:
    """Return a key for a path: itself if it is short and printable, else its quote."""
    return key if len(key) <= _LONGEST and key.isprintable() else quote_value(key)
