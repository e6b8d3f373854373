import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.parts import plans
from tests.parts.lanes import Part, Stage
from tests.parts.quarters import QUARTERS, ROOT

NAMED = ("-c", "user.name=t", "-c", "user.email=t@example.org")
NUMBERS = range(1, len(QUARTERS) + 1)


def parts(*stages: Stage) -> list[Part]:
    return [part for stage in stages for part in (*stage.main, *stage.beside)]


def git(folder: Path, *words: str) -> str:
    command = ("git", *NAMED, "-C", str(folder), *words)
    done = subprocess.run(  # noqa: S603  # own arguments only
        command, check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip()


def commit(folder: Path, *subjects: str) -> str:
    """Make a repository with these commits; return the hash of the last."""
    folder.mkdir()
    git(folder, "init", "-q")
    for subject in subjects:
        git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def test_all_that_there_is_is_the_core_and_each_quarter_once() -> None:
    everything = Counter(part.command for part in parts(*plans.everything(ROOT)))
    quarters = [part for each in NUMBERS for part in parts(*plans.quarter(each))]
    rest = [*parts(*plans.core(ROOT)), *quarters]

    assert set(everything.values()) == {1}
    assert {*everything} == {part.command for part in rest} | {
        ("make", "--keep-going", "test"),
        ("make", "demo"),
        plans.operators().command,
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_a_change_runs_tests_demo_core_and_one_quarter(number: int) -> None:
    found = {part.command for part in parts(*plans.ci(ROOT, number))}

    assert found == {
        ("make", "--keep-going", "test"),
        ("make", "demo"),
        *(part.command for part in parts(*plans.core(ROOT))),
        *(part.command for part in parts(*plans.quarter(number))),
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_what_a_part_needs_is_in_its_run(number: int) -> None:
    for stages in (plans.quarter(number), plans.core(ROOT), plans.everything(ROOT)):
        names = [part.name for part in parts(*stages)]
        assert {name for part in parts(*stages) for name in part.needs} <= {*names}
        assert len(names) == len({*names})


def test_a_commit_runs_the_quarter_of_its_hash(tmp_path: Path) -> None:
    head = commit(tmp_path / "whole", "e2e: first")

    number, reason = plans.choose(tmp_path / "whole")

    assert number == int(head, 16) % len(QUARTERS) + 1
    assert reason == f"by the hash of commit {head[:10]}"


def test_a_shallow_clone_and_a_folder_without_git_run_the_first(tmp_path: Path) -> None:
    commit(tmp_path / "whole", "e2e: first", "e2e: second")
    git(
        tmp_path,
        *("clone", "-q", "--depth", "1", f"file://{tmp_path}/whole", "shallow"),
    )
    (tmp_path / "bare").mkdir()

    assert plans.choose(tmp_path / "shallow") == (1, "because this clone is shallow")
    assert plans.choose(tmp_path / "bare") == (1, "because no commit is known here")
