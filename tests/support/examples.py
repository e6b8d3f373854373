"""How many examples of hypothesis a test takes. A module of its own: many tests use it.

A test takes few of them in `make test`, and many in `make long`.
"""

import os
from typing import Any

import pytest


def examples(few: int, many: Any, *, variable: str = "") -> pytest.MarkDecorator:
    """Run a test with each of these numbers as its `examples`.

    Args:
        few: Number of examples in `make test`.
        many: Parameters with the number of examples in `make long`, and its mark.
        variable: In the environment, asks for another number in place of both.
    """
    asked = os.environ.get(variable)
    return pytest.mark.parametrize("examples", [int(asked)] if asked else [few, many])
