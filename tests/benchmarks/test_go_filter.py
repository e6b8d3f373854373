from pathlib import Path

import pytest

from benchmarks import go_filter
from tests.e2e.stages import CannotError


def test_without_go_the_go_client_is_said_to_be_impossible(tmp_path: Path) -> None:
    with pytest.raises(CannotError, match="no program go in PATH"):
        go_filter.check(str(tmp_path))
