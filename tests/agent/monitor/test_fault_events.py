"""Fault events that come faster than the driver is looked at."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.monitor.faulty_node import CHIP, FaultyNode

#: The built-in rule: three times a day separate the chip.
HBM = "80E18005"
#: A rule that the longest of the sequences below does not meet.
OFTEN = {
    "FaultFrequency": [
        {
            "EventId": [HBM],
            "TimeWindow": 86400,
            "Times": 100,
            "FaultHandling": "ManuallySeparateNPU",
        }
    ]
}


@pytest.fixture
def node(*, is_second: bool) -> FaultyNode:
    return FaultyNode(is_second=is_second)


def test_each_one_off_event_counts(node: FaultyNode) -> None:
    raised = []
    for _ in range(10):
        node.now += 0.8
        node.send(HBM)
        node.look()
        raised.append(node.raised)

    assert raised == [set(), set(), *[{"FaultFrequency"}] * 8]
    assert node.out == (CHIP,)


def test_a_code_that_flaps_between_two_looks_counts_each_time(node: FaultyNode) -> None:
    for _ in range(3):
        node.send(HBM)
        node.send(HBM, is_over=True)
    node.look()

    assert node.raised == {"FaultFrequency"}


@pytest.mark.parametrize("times", [2, 3])
def test_events_of_a_chip_whose_codes_cannot_be_read_count_once(
    node: FaultyNode, times: int
) -> None:
    """MindCluster counts them without reading codes."""
    node.library.mute = {CHIP}
    for _ in range(times):
        node.now += 1.0
        node.send(HBM)
        node.look()
    raised = node.raised
    node.library.mute = set()
    node.now += 3.0
    node.look()

    assert (raised == {"FaultFrequency"}) == (times == 3)
    assert node.raised == raised


def test_a_reading_that_is_judged_twice_counts_once(node: FaultyNode) -> None:
    for _ in range(2):
        node.now += 5.0
        node.send(HBM)
        node.look()
        node.chip_monitor.judge_again()
        node.chip_monitor.judge_again()

    assert node.raised == set()


@pytest.mark.parametrize("is_event_first", [True, False])
def test_an_event_and_the_list_of_codes_tell_of_one_fault(
    node: FaultyNode, *, is_event_first: bool
) -> None:
    for _ in range(2):
        node.now += 100.0
        if is_event_first:
            node.send(HBM)
        else:
            node.list_code(HBM, is_listed=True)
        node.look()
        node.now += 1.0
        if is_event_first:
            node.look()  # the list lags behind the event
            node.list_code(HBM, is_listed=True)
        else:
            node.send(HBM)
        node.now += 0.5
        node.look()
        node.now += 10.0
        node.list_code(HBM, is_listed=False)
        node.look()

    assert node.raised == set()
    node.send(HBM)
    node.look()
    assert node.raised == {"FaultFrequency"}


def test_without_events_each_appearance_in_the_list_counts(node: FaultyNode) -> None:
    for is_listed in (True, False, True, False, True):
        node.now += 1.0
        node.list_code(HBM, is_listed=is_listed)
        node.look()

    assert node.raised == {"FaultFrequency"}


@pytest.mark.property
@given(
    steps=st.lists(
        st.tuples(
            st.floats(0.01, 3.0),
            st.sampled_from(["begin", "end", "look", "mute", "heard", "again"]),
        ),
        max_size=60,
    )
)
def test_no_event_is_lost_and_none_counts_twice(
    steps: list[tuple[float, str]],
) -> None:
    """The list follows the events at once; the codes cannot be read now and then."""
    node, begins = FaultyNode({"faultCustomization.json": json.dumps(OFTEN)}), 0
    for pause_s, what in [*steps, (1.0, "heard"), (1.0, "look")]:
        node.now += pause_s
        match what:
            case "begin":
                begins += 1
                node.list_code(HBM, is_listed=True)
                node.send(HBM)
            case "end":
                node.list_code(HBM, is_listed=False)
                node.send(HBM, is_over=True)
            case "look":
                node.look()
            case "mute":
                node.library.mute = {CHIP}
            case "heard":
                node.library.mute = set()
            case _:
                node.chip_monitor.judge_again()

    histories = node.chip_monitor._courses.histories
    assert [len(history.occurrences_s) for history in histories.values()] == (
        [begins] if begins else []
    )
