"""Resource versions as numbers.

They are decimal numbers that rise (KEP-5504 lets clients compare them). Other values
are not comparable. A module of its own: list-watch and the agent's reports both order
versions, and the agent needs nothing else of `kube.store`.
"""

#: Most digits; no API server has more, and longer ones are slow to parse.
_DIGITS = 100


def parse(version: str) -> int | None:
    """Return the number of a resource version; None if it is not decimal.

    Args:
        version: `metadata.resourceVersion`; may be empty.
    """
    is_number = version.isascii() and version.isdecimal() and len(version) <= _DIGITS
    return int(version) if is_number else None
