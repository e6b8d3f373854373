"""Which number is a resource version?

They are decimal numbers that rise (KEP-5504 lets clients compare them); of what is not
one, nothing can be said.
"""

#: More digits than any API server's have, and fewer than cost anything.
_DIGITS = 100


def number(version: str) -> int | None:
    """Return the number that a resource version is; None if it is none.

    Args:
        version: `metadata.resourceVersion`, whatever stands there.
    """
    is_number = version.isascii() and version.isdecimal() and len(version) <= _DIGITS
    return int(version) if is_number else None
