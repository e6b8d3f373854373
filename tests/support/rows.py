"""Tables of a test's cases. A module of its own: tests of all packages use it."""

from collections.abc import Mapping

import pytest


def rows(
    names: str | tuple[str, ...], table: Mapping[str, object]
) -> pytest.MarkDecorator:
    """Parametrize a test by {id: its values}."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))
