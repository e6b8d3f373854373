"""Which version of us is this."""

from functools import cache
from importlib import metadata

_DISTRIBUTION = "ascend-affinity"


@cache
def version() -> str:
    """Return the version of the installed package; "unknown" where it is not."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
