"""What the kernel tells of edits of a file."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from agent.devices.file_changes import FileWatch

#: Longer than a test may take.
NEVER_S = 30.0


def written(path: Path) -> None:
    path.write_text("two")


def renamed(path: Path) -> None:
    path.with_suffix(".new").write_text("two")
    path.with_suffix(".new").rename(path)


def relinked(path: Path) -> None:
    """As the kubelet brings a changed ConfigMap."""
    (path.parent / "second").write_text("two")
    (path.parent / "link").symlink_to("second")
    (path.parent / "link").rename(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "npu.yaml"
    found.write_text("one")
    return found


@pytest.mark.parametrize("edit", [written, renamed, relinked])
def test_an_edit_ends_the_wait(path: Path, edit: Callable[[Path], None]) -> None:
    edits = FileWatch(path)

    assert edits.arm()
    edit(path)

    assert edits.wait(NEVER_S)
    assert path.read_text() == "two"


def test_so_does_one_where_a_link_leads(path: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(path)
    edits = FileWatch(tmp_path / "folder" / "link")

    assert edits.arm()
    written(path)

    assert edits.wait(NEVER_S)


def test_the_next_file_is_watched_as_the_first_was(path: Path) -> None:
    edits = FileWatch(path)
    for edit in (renamed, written, renamed):
        assert edits.arm()
        edit(path)

        assert edits.wait(NEVER_S)


def test_a_file_that_is_not_there_is_told_of_by_nobody(path: Path) -> None:
    edits = FileWatch(path)
    path.unlink()

    assert not edits.arm()


def test_nobody_waits_after_the_end(path: Path) -> None:
    edits, outcomes = FileWatch(path), list[bool]()
    waiting = Thread(target=lambda: outcomes.append(edits.wait(NEVER_S)))
    waiting.start()

    edits.stop()
    waiting.join()

    assert [*outcomes, edits.wait(NEVER_S)] == [False, False]
