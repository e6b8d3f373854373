"""What runs, in which order, and beside what.

What tells most comes first. Tests on the node mostly wait, so all else runs beside
them. While programs of the control plane are built, that is what needs none of them.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.parts import marks
from tests.parts.lanes import Part, Stage
from tests.parts.quarters import OPERATORS, QUARTERS

#: Of the tests on the real cluster.
E2E = "tests/e2e"
_FAULTS = f"{E2E}/faults/"
_BUILD = Part(name="build", command=(sys.executable, "-m", "tests.e2e", "build"))
_UP = Part(
    name="cluster up",
    command=(sys.executable, "-m", "tests.e2e", "up"),
    needs=(_BUILD.name,),
)
_DOWN = Part(
    name="cluster down",
    command=(sys.executable, "-m", "tests.e2e", "down"),
    needs=(_UP.name,),
    is_end=True,
)
# A format that is wrong keeps no test from running.
_TEST = Part(name="make test", command=("make", "--keep-going", "test"))
_DEMO = Part(name="make demo", command=("make", "demo"))
_BEHIND = ("make scenarios",)
#: Fewer than processors: the node's programs have to go on as well.
_WORKERS = "2"


def ci(root: Path, number: int) -> Sequence[Stage]:
    """Return what each change must pass: tests, demo, core and one quarter."""
    beside = [_DEMO, *_core_beside(root), *_quarter_beside(number)]
    return [
        Stage(main=[_TEST]),
        Stage(main=_on_node(*_core(root), *_quarter(number)), beside=beside),
    ]


def everything(root: Path) -> Sequence[Stage]:
    """Return all that there is."""
    numbers = range(1, len(QUARTERS) + 1)
    main = [*_core(root), *(part for number in numbers for part in _quarter(number))]
    rest = [part for number in numbers for part in _quarter_beside(number)]
    # The tests on the node take less time than all others, so some come behind them.
    behind = [part for part in rest if part.name in _BEHIND]
    beside = [_DEMO, *_core_beside(root), *(p for p in rest if p.name not in _BEHIND)]
    return [
        Stage(main=[_TEST]),
        Stage(main=[*_on_node(*main), *behind, operators()], beside=beside),
    ]


def operators() -> Part:
    """Return the stories of jobs of KubeRay and Kubeflow, which no quarter has."""
    return _tests("operators", "operators", "not core", OPERATORS)


def core(root: Path) -> Sequence[Stage]:
    """Return the core alone."""
    return [Stage(main=_on_node(*_core(root)), beside=[*_core_beside(root)])]


def quarter(number: int) -> Sequence[Stage]:
    """Return one quarter alone."""
    return [Stage(main=_on_node(*_quarter(number)), beside=[*_quarter_beside(number)])]


def _on_node(*tests: Part) -> Sequence[Part]:
    return [_BUILD, _UP, *tests, _DOWN]


def _core(root: Path) -> Iterator[Part]:
    files = _core_files(root, [name for each in QUARTERS for name in each.node])
    # Pods of the faults stay from the first of them to the last.
    files.sort(key=lambda name: name.startswith(_FAULTS))
    yield _tests("core, on the node", "run", "core", files)


def _core_beside(root: Path) -> Iterator[Part]:
    files = _core_files(root, [name for each in QUARTERS for name in each.bare])
    yield _tests("core, without a node", "bare", "core", files)


def _core_files(root: Path, files: Sequence[str]) -> list[str]:
    marked = {test.partition("::")[0] for _, test in marks.core(root, E2E)}
    return [name for name in files if name in marked]


def _quarter(number: int) -> Iterator[Part]:
    """Yield what has the node."""
    this = QUARTERS[number - 1]
    yield _tests(f"quarter {number}, on the node", "run", "not core", this.node)


def _quarter_beside(number: int) -> Iterator[Part]:
    this = QUARTERS[number - 1]
    name = f"quarter {number}, without a node"
    yield _tests(name, "bare", "not core", this.bare)
    if this.controllers:
        name = f"quarter {number}, real controllers"
        yield _tests(name, "controllers", "not core", this.controllers)
    pytest = (sys.executable, "-m", "pytest", "-q", "-n", _WORKERS, "-m", "long")
    yield Part(name=f"quarter {number}, long", command=(*pytest, *this.long))
    for words in this.make:
        yield Part(name=f"make {words[0]}", command=("make", *words))


def _tests(name: str, command: str, mark: str, files: Sequence[str]) -> Part:
    """Return a part of the tests on the real cluster."""
    needs = _UP if command == "run" else _BUILD
    return Part(
        name=name,
        command=(sys.executable, "-m", "tests.e2e", command, "-m", mark, *files),
        needs=(needs.name,),
    )


def choose(root: Path) -> tuple[int, str]:
    """Return the quarter that a commit runs, and why that one.

    A hash is as good as chance, and gives the same answer again.
    """
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return 1, "because no commit is known here"
    if _git(root, "rev-parse", "--is-shallow-repository") != "false":
        return 1, "because this clone is shallow"
    return int(head, 16) % len(QUARTERS) + 1, f"by the hash of commit {head[:10]}"


def _git(root: Path, *words: str) -> str:
    """Return what git prints; "" where it fails or is not installed."""
    command = ("git", "-C", str(root), *words)
    try:
        done = subprocess.run(  # noqa: S603  # own arguments only
            command, check=True, capture_output=True, encoding="utf-8"
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
