"""What the checks around each test find; pytest's own report is what counts."""

import re
from pathlib import Path

from tests.support.process_state import KINDS
from tests.support.programs import run_python

ROOT = Path(__file__).parents[1]
_REPORT = re.compile(
    r"::test_(\w+) has changed its process and not put it back:\n  ([a-z ]+): "
)


def test_each_kind_of_change_fails_the_test_that_left_it() -> None:
    options = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")

    ended = run_python(
        *("-m", "pytest", *options, "tests/process_changes.py"), cwd=ROOT, check=False
    )

    found = dict(_REPORT.findall(ended.stdout))
    wrong = {test for test, kind in found.items() if kind not in test.replace("_", " ")}
    assert wrong == set()
    assert {*found.values()} == {*KINDS}, ended.stdout
    # each test passes but for that, and the last one has put all of it back
    total = len(found)
    assert f"{total + 1} passed, {total} errors in" in ended.stdout
