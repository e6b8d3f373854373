"""A wrong value as an error repeats it: bounded, and text that anybody can take.

Whoever said it may have said a megabyte, a thousand levels, or half a character.
"""

import reprlib

#: The most of a value that an error repeats. Unit: characters.
_LONGEST = 60
#: Whole numbers up to this many bits are shown in full.
_MOST_BITS = 256


class _Repr(reprlib.Repr):
    """Bounded in length and depth, for numbers too."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 2 * _LONGEST

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002  # reprlib's signature
        if x.bit_length() > _MOST_BITS:  # its digits may be more than Python writes
            return f"a whole number of {x.bit_length()} bits"
        return repr(x)


_REPR = _Repr()


def shown(value: object) -> str:
    """Return a wrong value as an error repeats it."""
    text = _REPR.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def shown_key(key: object) -> str:
    """Return a key as it stands in a path, where it is one that a person can read."""
    readable = isinstance(key, str) and len(key) <= _LONGEST and key.isprintable()
    return str(key) if readable else shown(key)
