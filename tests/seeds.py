"""Which test carries which point of the seed documents, and what is still open?

The product was created from documents that say how Ascend chips are to be
scheduled. Each of their demands has an id here (document, number) and is carried by
tests that are marked with it: `@pytest.mark.seed("004-09")`. This reads the marks of
the collected tests. Exit code 1: a mark names an id that does not exist, a point that
this version promises has no test, or the tests cannot be collected.
"""

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: {id: what the document demands}. 000: the scheduling process; 001: the affinity
#: description; 002 and 004: the algorithm for the 910 (004 is the later text); 003:
#: the scoring of nodes.
POINTS: Mapping[str, str] = {
    "000-01": "the agent reports health, the scheduler computes free chips",
    "000-02": "chips and timestamp go into the annotations, then bind",
    "000-03": "a periodic pass corrects the annotations to what was mounted",
    "000-04": "mounting by the plugin or by Ascend Docker Runtime",
    "000-05": "Allocate takes the pending pod with the earliest timestamp",
    "000-06": "without self-maintenance the ConfigMap lists the free chips",
    "000-07": "format of the ConfigMap; used chips are those of living pods",
    "000-08": "with self-maintenance that list takes no effect",
    "000-09": "predicate-time is compared as a number",
    "000-10": "the kubelet's own choice goes to kltDev (7 and 0 for 0 and 1)",
    "000-11": "who is a candidate; then predicate-time is the largest uint64",
    "001-01": "order of closeness: card, HCCS, PCIe",
    "001-02": "Atlas training: up to 4 chips in one ring, few fragments",
    "001-03": "Box16: up to 8 chips in one ring, more evenly over both",
    "001-04": "A3: even counts take whole modules",
    "001-05": "300I: by card, fewer than 4 stay on one card",
    "001-06": "300I Duo: distributed inference takes whole cards",
    "001-07": "300I Duo: odd counts prefer a card with one chip left",
    "001-08": "interconnect before RoCE, leaf before spine",
    "001-09": "which product uses which network",
    "001-10": "switch affinity 1.0",
    "001-11": "switch affinity 2.0",
    "001-12": "single-layer network: never across leaves",
    "001-13": "logical SuperPoD: high traffic stays in one network",
    "002-01": "a virtual device: request 1 only",
    "002-02": "310 card, 310 chip, 310P, card910x2, half910x4, module910x8",
    "002-03": "rescheduling after faults",
    "002-04": "dynamic virtual devices",
    "003-01": "a node with one chip left beats one with rings of 2 and 3",
    "003-02": "the matrix of scores of flat products",
    "003-03": "switch and SuperPoD configuration is asked first",
    "003-04": "what an idle leaf is",
    "003-05": "the two orders of leaves",
    "003-06": "filler jobs",
    "003-07": "large-model jobs",
    "003-08": "1.0, not enough idle leaves: logical switches",
    "003-09": "2.0, not enough idle leaves: shared leaves",
    "003-10": "common jobs",
    "003-11": "the three queues of SuperPoDs",
    "003-12": "the order in queue 1",
    "003-13": "the rest of queue 1, then queue 2",
    "003-14": "queue 3 only when the policy is soft",
    "004-01": "ring preference by count",
    "004-02": "capacity 8 before 7 before lower; a bad chip counts as used",
    "004-03": "nodes already in use first",
    "004-04": "even priority leaves nothing to decide",
    "004-05": "groups A to D of pairs of rings",
    "004-06": "training jobs: more than 8 chips only as 8 per pod",
    "004-07": "the steps: count, node, chips, save, score, allocate, commit",
    "004-08": "requests that break 004-06 are refused before scheduling",
    "004-09": "two chips wanted, one free in each ring: refused",
    "004-10": "the node's chips go into the pod (here: chosen at bind)",
    "004-11": "the chips of a node are managed in one place",
    "004-12": "several tasks on one node never share a chip",
    "004-13": "chips that wait to be released are not given out",
    "004-14": "several nodes: first the group, then the node in the group",
    "004-15": "deployment: the scheduler's configuration",
}

#: Not meant to be built now.
LATER = frozenset({"002-03", "002-04"})

#: What this version has to carry.
PROMISED = frozenset(
    {
        *("000-01", "000-02", "000-03", "000-04", "000-05", "000-07", "000-09"),
        *("000-10", "004-13"),
        *("000-11", "001-02", "003-01", "004-01", "004-02", "004-03", "004-04"),
        *("004-05", "004-07", "004-09", "004-10", "004-11", "004-12", "004-14"),
        *("001-01", "001-03", "001-04", "001-05", "001-06", "001-07", "001-09"),
        *("002-01", "002-02", "003-02", "004-06", "001-08", "001-10", "001-11"),
        *("001-12", "003-03", "003-04", "003-05", "003-06", "003-07", "003-08"),
        *("001-13", "003-09", "003-10", "003-11", "003-12", "003-13", "003-14"),
    }
)

#: (id, test) pairs, as they were found.
Marks = Sequence[tuple[str, str]]


class NotCollectedError(Exception):
    """pytest could not collect the tests; the text is what it said."""


class _Marks:
    """A pytest plugin. Protects nothing; gathers the marks of what was collected."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            test = item.nodeid.partition("[")[0]  # cases of one test are one test
            for mark in item.iter_markers("seed"):
                self.found += [(str(point), test) for point in mark.args]


def collected() -> Marks:
    """Return the marks of all tests.

    Raises:
        NotCollectedError: The tests cannot be collected.
    """
    marks, said = _Marks(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(
            ["--collect-only", "-q", "--rootdir", str(ROOT), str(ROOT / "tests")],
            plugins=[marks],
        )
    if code is not pytest.ExitCode.OK:
        raise NotCollectedError(said.getvalue())
    return marks.found


def listing(marks: Marks) -> str:
    """Return every point with its tests, and at the end what has none."""
    carried: dict[str, dict[str, None]] = {}
    for point, test in marks:
        carried.setdefault(point, {})[test] = None
    found = [point for point in POINTS if point in carried]
    lines = []
    for point in found:
        lines += [
            f"{point}  {POINTS[point]}",
            *(f"        {t}" for t in carried[point]),
        ]
    still_open = [point for point in POINTS if point not in carried]
    lines += ["", f"{len(found)} of {len(POINTS)} points are carried by tests."]
    for title, points in (
        ("Open", [point for point in still_open if point not in LATER]),
        ("Later", [point for point in still_open if point in LATER]),
    ):
        lines += ["", f"{title}:", *(f"  {point}  {POINTS[point]}" for point in points)]
    return "\n".join(lines)


def problems(marks: Marks) -> list[str]:
    """Say which marks name no point, and which promised points have no test."""
    carried = {point for point, _ in marks}
    unknown = sorted({(point, test) for point, test in marks if point not in POINTS})
    return [
        *(f"{test}: no point {point!r} in tests/seeds.py" for point, test in unknown),
        *(f"{p} has no test: {POINTS[p]}" for p in sorted(PROMISED - carried)),
    ]


def main() -> int:
    """Print the list; the exit code says whether all is as it should be."""
    try:
        marks = collected()
    except NotCollectedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{listing(marks)}\n")
    found = problems(marks)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
