"""A filter call does not enter more functions and files than it did."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.entered import ROOT, Entered, lines

#: {call: (functions, files)}. A change that enters more raises a number and says why.
#: One that enters fewer lowers it.
LIMITS = {
    # whether a pod of its index still ends
    "filter of a pod by itself": (37, 18),
    # it reads the least number of pods, and whether each kind of member has nodes;
    # a job and its plan are files of their own; a plan is read, placed and reserved
    # in three; all nodes enter the index together; kinds that wait for others get
    # their nodes, an elastic job is cut to what the gate takes, and a pod may be near
    # pods of others or of its job; one file says for all questions which kind of
    # server a job gets; how far the wall clock was set is read where the time is;
    # whether a pod of its index still ends, and whether a fault moves it
    "filter that plans a job of 4 pods": (252, 64),
}


def test_a_filter_call_enters_no_more_functions_and_files_than_its_limits() -> None:
    # in a process of its own: an extender freezes Python's garbage collection
    printed = subprocess.run(
        [sys.executable, "-m", "tests.entered"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout

    figures = {
        title: (int(functions), int(files))
        for title, functions, files in re.findall(
            r"^(.+): (\d+) functions in (\d+) files$", printed.decode(), re.MULTILINE
        )
    }
    assert figures.keys() == LIMITS.keys()
    above = {
        title: found
        for title, found in figures.items()
        if any(one > most for one, most in zip(found, LIMITS[title], strict=True))
    }
    assert above == {}
    assert min(min(found) for found in figures.values()) > 10  # not an empty record


SOURCE = """
def outer():
    inner()
    inner()
    return [each for each in map(lambda number: number + 1, range(3))]

def inner():
    pass

def other():
    pass
"""


def function(root: Path, path: str, name: str) -> Callable[[], object]:
    """A function of `SOURCE`, as if a file below `root` had it."""
    names: dict[str, Callable[[], object]] = {}
    exec(compile(SOURCE, root / path, "exec"), names)  # noqa: S102  # the text above
    return names[name]


def test_a_record_has_each_function_once_and_no_comprehension(tmp_path: Path) -> None:
    outer = function(tmp_path, "ours/a.py", "outer")
    other = function(tmp_path, "ours/b/c.py", "other")
    entered = Entered(root=tmp_path, packages=["ours"])

    with entered.recording():
        outer()
        other()
        outer()

    assert {path: list(names) for path, names in entered.functions.items()} == {
        "ours/a.py": [(2, "outer"), (7, "inner"), (5, "outer.<locals>.<lambda>")],
        "ours/b/c.py": [(10, "other")],
    }
    assert entered.figures() == (4, 2)


@pytest.mark.parametrize("path", ["tests/a.py", ".venv/ours/a.py", "/elsewhere/a.py"])
def test_a_record_has_no_function_of_others(tmp_path: Path, path: str) -> None:
    entered = Entered(root=tmp_path, packages=["ours"])

    with entered.recording():
        function(tmp_path, path, "inner")()
    function(tmp_path, "ours/a.py", "inner")()  # after the record

    assert entered.figures() == (0, 0)


def test_the_list_names_functions_by_file_below_the_figures() -> None:
    entered = Entered(functions={"kube/a.py": {(12, "put"): None, (3, "get"): None}})

    assert list(lines({"filter": entered}, is_list=False)) == [
        "filter: 2 functions in 1 files"
    ]
    assert list(lines({"filter": entered}, is_list=True)) == [
        "filter: 2 functions in 1 files",
        "  kube/a.py",
        "      12 put",
        "       3 get",
    ]
