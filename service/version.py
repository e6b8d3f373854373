"""Version of the installed program.

A module of its own: `--version` and the agent's metrics and reports show it.
"""

from functools import cache
from importlib import metadata

_DISTRIBUTION = "ascend-affinity"


@cache
def version() -> str:
    """Return the version of the installed package; "unknown" if it is not installed."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
