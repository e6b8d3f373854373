"""A wrong value as an error repeats it: bounded, and text that anybody can take.

Whoever sent it may have sent a megabyte, a thousand levels, or half a character.
"""

import reprlib

#: The most of a value that an error repeats. Unit: characters.
_LONGEST = 120
#: Whole numbers up to this many bits are shown in full.
_MOST_BITS = 256


class _Repr(reprlib.Repr):
    """Bounded in length and depth, for numbers too."""

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


def shown(value: object) -> str:
    """Return a value as an error repeats it, as `repr` does where that is short."""
    text = _REPR.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def shown_key(key: str) -> str:
    """Return a key as it stands in a path, where it is one that a person can read."""
    return key if len(key) <= _LONGEST and key.isprintable() else shown(key)
