"""Files for commands; and nothing is remembered when the tests of the core begin."""

import sys
from pathlib import Path

import pytest

from tests.scheduler_core.files import Files

#: what these remember are rows, which are told apart by identity
_ROWS = (
    "scheduler_core.products.columns",
    "scheduler_core.products.lookup",
    "scheduler_core.products.table",
)


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_remembered() -> None:
    """Mutation testing runs the tests again and again in copies of one process.

    What its first run has computed, before anything was changed, would be taken for
    the answers of the changed program.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("scheduler_core") and name not in _ROWS:
            for value in list(vars(module).values()):
                forget = getattr(value, "cache_clear", None)
                if forget is not None:
                    forget()
