"""Check the subjects of commits: `area: imperative`, at most 72 characters.

Looks at each commit since `BASE`. Passes without looking where that commit is not in
the history: a shallow clone, a tarball, a machine without git. Exit code 1: a subject
breaks a rule.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: The last commit before these rules.
BASE = "714fecc8475b6100c0fce46746f3cff15e91889b"
#: Unit: characters.
LONGEST = 72
#: Packages, and folders or subjects beside them.
AREAS = frozenset(
    {
        *("agent", "extender", "kube", "kubelet_api", "sandbox", "scheduler_core"),
        *("service", "benchmarks", "ci", "daemonset", "docs", "e2e", "foundation"),
        *("proto", "tests"),
    }
)
ARTICLES = frozenset({"the", "a", "an"})
RELATIVES = frozenset(
    {
        *("who", "whom", "whose", "whoever", "what", "whatever", "where", "once"),
        *("nobody", "somebody", "anybody", "everybody"),
    }
)
#: Imperatives with the ending of a participle.
IMPERATIVES = frozenset(
    {
        *("bleed", "breed", "embed", "exceed", "feed", "heed", "need", "proceed"),
        *("seed", "shed", "shred", "speed", "succeed", "weed", "wed"),
        *("bring", "cling", "ping", "ring", "sing", "sling", "spring", "string"),
        *("swing",),
    }
)

_SUBJECT = re.compile(r"(?P<areas>[^:]+): (?P<imperative>\S.*)")
_CODE = re.compile(r"`[^`]*`")
_WORD = re.compile(r"[\w'-]+")


def problems(subject: str) -> list[str]:
    """Return what is wrong with one subject; nothing for a good one."""
    found = []
    if len(subject) > LONGEST:
        found.append(f"has {len(subject)} characters, expected at most {LONGEST}")
    parts = _SUBJECT.fullmatch(subject)
    if parts is None:
        return [*found, "expected `area: imperative`"]
    found += [
        f"area {area!r} is none of {', '.join(sorted(AREAS))}"
        for area in parts["areas"].split(", ")
        if area not in AREAS
    ]
    return [*found, *_in_words(_CODE.sub("`code`", parts["imperative"]))]


def _in_words(imperative: str) -> list[str]:
    words = _WORD.findall(imperative)
    first = words[0] if words else ""
    if not re.fullmatch("[a-z-]+", first):
        return [f"expected a verb in lower case behind the colon, found {first!r}"]
    if first in ARTICLES:
        return [f"expected an imperative, found the article {first!r}"]
    if first in RELATIVES:
        return [f"expected an imperative, found the pronoun {first!r}"]
    if first.endswith(("ed", "ing")) and first not in IMPERATIVES:
        return [f"expected an imperative, found the participle {first!r}"]
    return []


def history(root: Path, base: str) -> Mapping[str, str] | None:
    """Return {commit: subject} since `base`, without merges; None where it is unknown.

    Args:
        root: Of the checkout; need not be one.
        base: A full hash.
    """
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return None
    listed = _git(root, "log", "--no-merges", "--format=%H %s", f"{base}..HEAD")
    if listed is None:
        return None
    pairs = (line.partition(" ") for line in listed.splitlines())
    return {commit: subject for commit, _, subject in pairs}


def _git(root: Path, *words: str) -> str | None:
    """Return what git prints; None where it fails or is not installed."""
    command: Sequence[str] = ("git", "-C", str(root), *words)
    try:
        done = subprocess.run(  # noqa: S603  # own arguments only
            command, check=True, capture_output=True, encoding="utf-8"
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def main(root: Path = ROOT, base: str = BASE) -> int:
    """Check each commit since `base`; return the exit code."""
    subjects = history(root, base)
    if subjects is None:
        sys.stdout.write(f"Commit subjects not checked: no {base[:10]} in history.\n")
        return 0
    wrong = [
        f"{commit[:10]} {subject!r}: {problem}"
        for commit, subject in subjects.items()
        for problem in problems(subject)
    ]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
