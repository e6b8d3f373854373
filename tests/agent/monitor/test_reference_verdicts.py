"""Sequences of fault events, and the levels that MindCluster's device plugin raises.

The verdicts were derived by hand from its source, `pkg/common/fault_code.go` (at
22bb3d98); each case names the lines. A change is due in the second of its time.
"""

import json
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import pytest

from tests.agent.monitor.faulty_node import CHIP, FaultyNode

CODE = "80E01801"
FREQUENT = {
    "EventId": [CODE],
    "TimeWindow": 100,
    "Times": 3,
    "FaultHandling": "ManuallySeparateNPU",
}
#: Ends by itself.
EASING = FREQUENT | {
    "TimeWindow": 3600,
    "FaultHandling": "SeparateNPU",
    "ReleaseTimeWindow": 60,
}
LASTING = {
    "EventId": [CODE],
    "FaultTimeout": 20,
    "RecoverTimeout": 60,
    "FaultHandling": "PreSeparateNPU",
}
COUNTED, EASED = {"FaultFrequency": [FREQUENT]}, {"FaultFrequency": [EASING]}
TIMED = {"FaultDuration": [LASTING]}
BOTH = {"FaultFrequency": [EASING], "FaultDuration": [LASTING]}
OFTEN, NOT_OFTEN = "+FaultFrequency", "-FaultFrequency"
LONG, NOT_LONG = "+FaultDuration", "-FaultDuration"


class Case(NamedTuple):
    """Rules, events of one code, and the changes of raised levels."""

    name: str
    #: Of `fault_code.go`.
    lines: str
    rules: Mapping[str, object]
    #: (seconds, "+" begin, "-" end, "!" one-off)
    events: list[tuple[float, str]]
    changes: list[tuple[int, str]]
    until_s: float = 60


def stays(*ranges: tuple[float, float]) -> list[tuple[float, str]]:
    """Return the events of a code that is there from … to …, several times."""
    return [event for begin, end in ranges for event in ((begin, "+"), (end, "-"))]


THRICE_LONG = stays((0, 30), (100, 130), (200, 230))
CASES = [
    Case(
        "each begin counts",
        "1481-1488 appends each, 1247-1259 raises at Times",
        COUNTED,
        [(0, "+"), (10, "-"), (20, "+"), (30, "-"), (40, "+")],
        [(40, OFTEN)],
    ),
    Case(
        "one less than Times is not enough",
        "1247",
        COUNTED,
        stays((0, 10), (20, 30)),
        [],
    ),
    Case(
        "each one-off counts, however fast",
        "1482: FaultOnce as FaultOccur",
        COUNTED,
        [(0, "!"), (0.3, "!"), (0.6, "!")],
        [(1, OFTEN)],
    ),
    Case(
        "a code that flaps within a second counts each time",
        "1481-1488",
        COUNTED,
        stays((0, 0.1), (0.2, 0.3), (0.4, 0.5)),
        [(1, OFTEN)],
    ),
    Case(
        "a begin counts although the code is there",
        "1481-1488: device.FaultCodes is not asked",
        COUNTED,
        [(0, "+"), (10, "+"), (20, "+")],
        [(20, OFTEN)],
    ),
    Case(
        "an event as old as the window still counts",
        "1231-1241: older than its start is dropped",
        COUNTED,
        [(0, "!"), (40, "!"), (100, "!")],
        [(100, OFTEN)],
        until_s=110,
    ),
    Case(
        "an older event does not count",
        "1231-1241",
        COUNTED,
        [(0, "!"), (40, "!"), (102, "!"), (139, "!")],
        [(139, OFTEN)],
        until_s=150,
    ),
    Case(
        "without a release window time does not release",
        "1045-1048: the longest window, 136 years",
        COUNTED,
        stays((0, 1), (20, 21), (40, 41)),
        [(40, OFTEN)],
        until_s=1000,
    ),
    Case(
        "released once the code has been gone for longer than the window",
        "1260-1262",
        EASED,
        stays((0, 1), (20, 21), (40, 41)),
        [(40, OFTEN), (102, NOT_OFTEN)],
        until_s=110,
    ),
    Case(
        "a code that comes back keeps its level for longer",
        "1010 and 1028, 1260-1262",
        EASED,
        stays((0, 1), (20, 21), (40, 41), (80, 85)),
        [(40, OFTEN), (146, NOT_OFTEN)],
        until_s=150,
    ),
    Case(
        "after a release counting begins with none",
        "1256 and 1827: what led to the level is cleared",
        EASED,
        [*stays((0, 1), (20, 21), (40, 41)), (110, "!"), (120, "!"), (130, "!")],
        [(40, OFTEN), (102, NOT_OFTEN), (130, OFTEN)],
        until_s=140,
    ),
    Case(
        "while the level is raised nothing is counted",
        "1264-1269 and 1827",
        EASED,
        [
            *stays((0, 1), (20, 21), (40, 41), (50, 51), (60, 61)),
            *((130, "!"), (140, "!"), (150, "!")),
        ],
        [(40, OFTEN), (122, NOT_OFTEN), (150, OFTEN)],
        until_s=160,
    ),
    Case(
        "a code that stays for its time-out is not overdue",
        "2163: <=",
        TIMED,
        stays((0, 20)),
        [],
    ),
    Case(
        "one that stays for longer is",
        "2171-2185",
        TIMED,
        [(0, "+")],
        [(21, LONG)],
    ),
    Case(
        "also one whose end is seen too late",
        "2158-2169",
        TIMED,
        stays((0, 21)),
        [(21, LONG), (82, NOT_LONG)],
        until_s=90,
    ),
    Case(
        "a code that flaps is not overdue",
        "2158-2165: each pair of begin and end alone",
        TIMED,
        stays(*((0.8 * n, 0.8 * n + 0.4) for n in range(60))),
        [],
    ),
    Case(
        "repeated begins do not start the time-out again",
        "2056-2072: the first of equal events stays",
        TIMED,
        [(0, "+"), (10, "+"), (15, "+")],
        [(21, LONG)],
    ),
    Case(
        "one that comes back begins its recovery again",
        "2158-2165 with RecoverTimeout",
        TIMED,
        stays((0, 30), (80, 81)),
        [(21, LONG), (142, NOT_LONG)],
        until_s=150,
    ),
    Case(
        "with a duration rule short faults do not count",
        "1486-1488 and 1653-1655",
        BOTH,
        stays((0, 5), (10, 15), (20, 25)),
        [],
    ),
    Case(
        "with a duration rule each overdue fault counts",
        "2123-2125",
        BOTH,
        THRICE_LONG,
        [
            *((21, LONG), (91, NOT_LONG), (121, LONG), (191, NOT_LONG)),
            *((221, LONG), (221, OFTEN), (291, NOT_LONG)),
        ],
        until_s=300,
    ),
    Case(
        "one that is overdue again before it has recovered counts once",
        "2123: only from not overdue to overdue",
        BOTH,
        stays((0, 30), (50, 80), (100, 130)),
        [(21, LONG), (191, NOT_LONG)],
        until_s=200,
    ),
    Case(
        "with a duration rule the release window begins with the recovery",
        "2126-2128, 2185: RecoverTimeout after the end; 1260-1262",
        BOTH,
        [*THRICE_LONG, *stays((310, 311), (340, 341))],
        [
            *((21, LONG), (91, NOT_LONG), (121, LONG), (191, NOT_LONG)),
            *((221, LONG), (221, OFTEN), (291, NOT_LONG), (351, NOT_OFTEN)),
        ],
        until_s=360,
    ),
]


@pytest.mark.parametrize("is_woken", [True, False], ids=["woken", "each-second"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_the_references(case: Case, *, is_woken: bool) -> None:
    node = FaultyNode({"faultCustomization.json": json.dumps(case.rules)})

    changes = node.play(CODE, case.events, until_s=case.until_s, is_woken=is_woken)

    assert [(ceil(at), change) for at, change in changes] == case.changes


def test_a_person_who_releases_the_chip_lets_counting_begin_with_none() -> None:
    # upgradefault.go 79-90, and 1827 of fault_code.go
    node = FaultyNode({"faultCustomization.json": json.dumps(COUNTED)})
    node.play(CODE, stays((0, 1), (10, 11), (20, 21)), until_s=30, is_woken=True)
    node.chip_monitor.apply_configmap({"ManuallySeparateNPU": "Ascend910-3"})
    node.chip_monitor.apply_configmap({"ManuallySeparateNPU": ""})

    changes = node.play(
        CODE, stays((1, 2), (10, 11), (20, 21)), until_s=30, is_woken=True
    )

    assert changes == [(20, OFTEN)]


@pytest.mark.parametrize("is_mute", [True, False], ids=["its codes", "no chip"])
def test_a_short_fault_is_none_that_lasts_because_nothing_was_read(
    *, is_mute: bool
) -> None:
    """A fault of two seconds was raised after 25 s in which it was not read."""
    node = FaultyNode({"faultCustomization.json": json.dumps(TIMED)})
    node.list_code(CODE, is_listed=True)
    node.now += 1.0
    node.look()
    if is_mute:
        node.library.mute.add(CHIP)
    for _ in range(25):
        node.now += 1.0
        if is_mute:
            node.look()
    node.library.mute.clear()
    node.list_code(CODE, is_listed=False)
    node.now += 1.0
    node.look()

    assert node.raised == set()
