import subprocess
import tomllib
from pathlib import Path

import pytest

from tests import commits

ROOT = Path(__file__).parents[1]
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")

GOOD = (
    "extender: release waiting binds when a-b turns out bound",
    "kube, service: name modules in client-go's words",
    "scheduler_core: embed reasons in Rejection",
    "agent: bring journal back after restart",
    "extender: prefer the tightest ring when a node has two",
    "docs: explain 18446744073709551615 as predicate-time of running pods",
    "tests: compare groups A to D with `what is a leaf`",
    f"e2e: {'x' * 67}",
)
WRONG = (
    ("x", "expected `area: imperative`"),
    ("extender:release binds", "expected `area: imperative`"),
    (f"e2e: {'x' * 68}", "has 73 characters, expected at most 72"),
    ("claims: release chips", "area 'claims' is none of agent, benchmarks, "),
    ("agent and kube: release chips", "area 'agent and kube' is none of "),
    ("agent, ledger: release chips", "area 'ledger' is none of "),
    ("Docs: name commands", "area 'Docs' is none of "),
    ("docs: Name commands", "expected a verb in lower case behind the colon"),
    ("agent: the tightest ring is preferred", "expected an imperative, found the ar"),
    ("agent: a pod is bound", "expected an imperative, found the article 'a'"),
    ("agent: an owner is evicted", "expected an imperative, found the article 'an'"),
    ("agent: what polls is named", "expected an imperative, found the pronoun"),
    ("agent: nobody is asked", "expected an imperative, found the pronoun"),
    ("agent: once claims are read", "expected an imperative, found the pronoun"),
    ("agent: where chips lie is said", "expected an imperative, found the pronoun"),
    ("agent: whoever waits is told", "expected an imperative, found the pronoun"),
    ("agent: restored holds", "expected an imperative, found the participle"),
    ("agent: waiting for pods ends", "expected an imperative, found the participle"),
)


@pytest.mark.parametrize("subject", GOOD)
def test_a_subject_of_area_and_imperative_passes(subject: str) -> None:
    assert commits.problems(subject) == []


@pytest.mark.parametrize(("subject", "problem"), WRONG)
def test_a_subject_that_breaks_one_rule_says_which(subject: str, problem: str) -> None:
    (found,) = commits.problems(subject)

    assert found.startswith(problem)


def test_each_allowed_imperative_looks_like_a_participle() -> None:
    assert all(word.endswith(("ed", "ing")) for word in commits.IMPERATIVES)


def test_each_package_of_the_product_is_an_area() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = settings["tool"]["importlinter"]["root_packages"]

    assert set(packages) <= commits.AREAS


def test_commits_since_the_base_are_checked_without_merges_and_what_was_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = history(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "side")
    commit(tmp_path, "agent: release chips")
    git(tmp_path, "checkout", "-q", "main")
    commit(tmp_path, "the chips")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "Merge the side", "side")

    assert commits.main(tmp_path, base) == 1
    wrong = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in wrong] == [
        "'the chips': expected `area: imperative`"
    ]


def test_good_commits_pass_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = history(tmp_path)
    commit(tmp_path, "agent: release chips")

    assert commits.main(tmp_path, base) == 0
    assert capsys.readouterr() == ("", "")


def test_a_history_without_the_base_passes_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history(tmp_path)
    commit(tmp_path, "the chips")

    assert commits.main(tmp_path) == 0
    assert capsys.readouterr().out == (
        "Commit subjects not checked: no 714fecc847 in history.\n"
    )


def test_a_folder_without_git_passes_and_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert commits.main(tmp_path) == 0
    assert "not checked" in capsys.readouterr().out


def history(root: Path) -> str:
    """Begin a history on the branch `main`; return its only commit."""
    git(root, "init", "-q", "-b", "main")
    commit(root, "before the rules")
    return git(root, "rev-parse", "HEAD").strip()


def commit(root: Path, subject: str) -> None:
    git(root, "commit", "-q", "--allow-empty", "-m", subject)


def git(root: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603  # our own
        [*GIT, "-C", str(root), *words], check=True, capture_output=True, text=True
    )
    return done.stdout
