"""Tests run in random order, those of the real cluster in the order of their files."""

from pathlib import Path
from typing import Any, cast

from tests import conftest

TESTS = Path(__file__).parent


class Item:
    """What the order depends on."""

    def __init__(self, path: Path) -> None:
        self.path = path


def order_after_shuffle(folder: Path) -> str:
    """Return the order of three tests of a file after they were shuffled."""
    written = [Item(folder / "test_x.py") for _ in range(3)]
    items = [*written]
    hook = conftest.pytest_collection_modifyitems(cast("Any", items))
    next(hook)
    items[:] = [written[2], written[0], written[1]]  # as a plugin does
    assert next(hook, None) is None
    return "".join(str(written.index(item)) for item in items)


def test_tests_stay_shuffled_except_those_of_the_real_cluster() -> None:
    assert order_after_shuffle(TESTS / "kube") == "201"
    assert order_after_shuffle(TESTS / "e2e" / "faults") == "012"
