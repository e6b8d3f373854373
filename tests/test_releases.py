"""The other release of the end-to-end tests can be made from these sources."""

import shutil
from pathlib import Path

from tests.e2e import releases
from tests.e2e.places import REPOSITORY


def test_each_difference_is_one_line_of_its_file(tmp_path: Path) -> None:
    for name in releases.DIFFERENCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, tmp_path / name)

    releases.differ(tmp_path)

    for name in releases.DIFFERENCES:
        before = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
        after = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        assert len(before) == len(after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
