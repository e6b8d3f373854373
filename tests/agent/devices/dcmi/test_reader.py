"""What is asked of the chips and when, at times that the test gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from agent.devices.dcmi.library import LEFT_OUT, NOT_EXIST, NOT_READY, Library
from agent.devices.dcmi.reader import DROPPED, GONE_S, ChipReader
from agent.devices.dcmi.values import SLOW, ChipState, Code
from agent.devices.reading import ChipFault
from agent.health.conditions import UNREAD_S
from tests.agent.devices.dcmi.outcomes import METHODS, OF_NODE
from tests.agent.devices.dcmi.simulated_node import (
    FACTS,
    IDENTIFIED_S,
    KNOWN,
    SimulatedNode,
    conditions,
)
from tests.agent.devices.scripted_library import (
    Answers,
    Fails,
    IsLate,
    Place,
    ScriptedLibrary,
)
from tests.support.clock import Time

CODE = 0x80E01801
MINUTE_S = 60.0
#: What the chips of an A3 say if they have no address.
WITHOUT_ADDRESS = {key: value for key, value in FACTS.items() if key != "address"}


class Asked:
    """A worker on 16 chips that sleeps as long as it may. Protects its clock."""

    def __init__(self, *, has_events: bool) -> None:
        self.time = Time(0.0)
        self.library = ScriptedLibrary(chips=16, dies=2, facts=WITHOUT_ADDRESS)
        self.reader = ChipReader(
            cast("Library", self.library),
            now_s=self.time,
            nodes=Path("/none"),
            has_events=has_events,
        )

    def look(self) -> tuple[ChipState, ...]:
        return self.reader.read_chips().chips

    def run(self, for_s: float) -> None:
        until_s = self.time() + for_s
        while self.time() < until_s:
            self.look()
            self.time.pass_s(self.reader.pause_s)

    def calls_of_a_minute(self) -> int:
        self.run(10 * MINUTE_S)
        self.library.counts.clear()
        self.run(10 * MINUTE_S)
        return self.library.counts.total() // 10


def listing(chips: tuple[ChipState, ...]) -> list[int]:
    return [chip.identity.physical_id for chip in chips if chip.codes]


def test_a_quiet_node_is_asked_little_where_faults_come_as_events() -> None:
    assert Asked(has_events=True).calls_of_a_minute() <= 600


def test_without_events_the_chips_are_polled_each_second() -> None:
    calls = Asked(has_events=False).calls_of_a_minute()

    # codes, health and processes of 16 chips each second are 2,880
    assert 2880 <= calls <= 3300


def test_an_event_is_seen_at_the_next_step_without_a_pause() -> None:
    asked = Asked(has_events=True)
    asked.run(MINUTE_S - 5.0)
    asked.library.codes_of[11] = (CODE,)
    asked.reader.add_event(11, Code(code=CODE, severity=2), is_over=False)

    assert asked.reader.pause_s == 0.0
    assert listing(asked.look()) == [11]


@pytest.mark.parametrize("began_s", [0.1, 0.5, 0.9, 9.9, 59.9])
def test_without_events_a_fault_is_seen_within_two_seconds(began_s: float) -> None:
    asked = Asked(has_events=False)
    asked.run(began_s)
    asked.library.codes_of[11] = (CODE,)
    faulty_s = asked.time()
    while not listing(asked.look()):
        asked.time.pass_s(asked.reader.pause_s)

    assert asked.time() - faulty_s <= 2.0


def test_a_chip_counts_as_unread_from_the_begin_of_its_look_to_its_end() -> None:
    """What it told before would count as the answer to a look asked for meanwhile."""
    asked = Asked(has_events=False)
    asked.run(5.0)
    asked.library.outcomes["codes", (3, 0)] = IsLate(4.0)
    asked.time.pass_s(asked.reader.pause_s)
    between = []

    def pass_s(seconds: float) -> None:
        asked.time.pass_s(seconds)
        assert asked.reader.is_held_up
        between.append(asked.reader.read_chips(is_asked=True, is_between=True))

    asked.library.pass_s = pass_s
    began_s = asked.time()
    after = asked.reader.read_chips()
    (survey,) = between

    assert [c.identity.physical_id for c in survey.chips if c.unread == SLOW] == [6]
    assert (survey.looked_s, after.looked_s) == (began_s + 4.0, began_s)
    assert [chip.unread for chip in after.chips] == [""] * 16


@pytest.mark.parametrize("dropped_s", [59.3, 59.6, 59.9, 60.2])
def test_a_chip_that_drops_while_it_is_identified_is_seen(dropped_s: float) -> None:
    """Finding F6: after 59.9 s it stayed healthy, and for ever."""
    node = SimulatedNode()
    while node.now < dropped_s:
        node.look()
        node.pass_s(0.1 if node.now > 58.0 else 1.0)
    for device in (0, 1):
        for method in set(METHODS) - OF_NODE:
            node.library.outcomes[method, (3, device)] = Fails(NOT_READY)
    for _ in range(5):
        node.pass_s(1.0)
        node.look()

    assert node.reading is not None
    assert {(fault.chip, fault.code) for fault in node.reading.faults} == {
        (6, f"{DROPPED:08X}"),
        (7, f"{DROPPED:08X}"),
    }
    assert node.conditions == conditions({6, 7})


@pytest.mark.parametrize("code", [-8010, -8255, -8006, -8009])
@pytest.mark.parametrize("is_known", [True, False])
def test_health_that_cannot_be_asked_for_is_no_fault_at_start(
    code: int, is_known: bool
) -> None:
    """Finding F7: no chip was served, although all codes could be read."""
    node = SimulatedNode(known=KNOWN) if is_known else SimulatedNode()
    node.library.outcomes["check_ready", None] = Fails(code)
    node.run(30.0)

    assert (node.problem, node.conditions) == ("", conditions())


@pytest.mark.parametrize("code", [-8010, -8255, -8006, -8009])
def test_health_that_cannot_be_asked_for_hides_no_fault_later(code: int) -> None:
    """Finding F7: the chip stayed as it was, and was given out."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["check_ready", (2, 1)] = Fails(code)
    node.library.codes_of[5] = (CODE,)
    node.run(30.0)

    assert node.reading is not None
    assert [fault.chip for fault in node.reading.faults] == [5]
    assert node.reading.unread == ()


def test_a_chip_without_health_and_codes_is_out_of_service_later() -> None:
    """Finding F7: it was given out for as long as that lasted."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["check_ready", (2, 1)] = Fails(-8006)
    node.library.outcomes["codes", (2, 1)] = Fails(-8009)
    node.run(12.0)
    soon = node.conditions
    node.run(30.0)

    assert (soon, node.conditions) == (conditions(), conditions({5}))
    assert node.health.chips[5].reason == (
        "cannot be read: dcmi_get_device_errorcode_v2: ioctl failed (-8009)"
    )


def test_nothing_is_asked_of_a_card_without_a_number() -> None:
    node = SimulatedNode()
    node.library.outcomes["cards", None] = Answers(((0, 1, 2), 1))
    node.run(5.0)
    asked = node.library.places

    assert node.reading is None
    assert {card for card, _ in asked} == {-1, 0, 1, 2}


def test_chips_whose_ids_are_exchanged_go_by_the_new_ones() -> None:
    node = SimulatedNode()
    node.run(5.0)
    for place, number in (((0, 0), 5), ((2, 1), 0)):
        node.library.outcomes["physical_id", place] = Answers(number)
    node.library.codes_of[0] = (CODE,)
    node.now = 60.0
    node.run(80.0)

    assert node.reading is not None
    assert node.problem == ""
    assert {fault.chip for fault in node.reading.faults} == {5}


def test_a_vanished_chip_is_out_of_service_until_its_codes_are_read() -> None:
    """Another error made it healthy for 15 s, by what was read before it vanished."""
    node = SimulatedNode()
    node.run(5.0)
    seen = []
    for code in (NOT_EXIST, -8005, NOT_EXIST, -8006):
        node.library.outcomes["codes", (2, 1)] = Fails(code)
        for _ in range(4):
            node.pass_s(2.0)
            node.look()
            seen.append(node.conditions)
    node.library.outcomes.clear()
    node.run(node.now + 5.0)

    assert seen == [conditions({5})] * 16
    assert node.conditions == conditions()


def test_a_vanished_chip_that_cannot_be_identified_is_out_of_service() -> None:
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["codes", (2, 1)] = Fails(NOT_EXIST)
    node.library.outcomes["logic_id", (2, 1)] = Fails(-8005)
    seen = []
    while node.now < 130.0:
        node.pass_s(2.0)
        node.look()
        seen.append(node.conditions)

    assert seen == [conditions({5})] * len(seen)


def test_chips_that_can_be_read_are_served_while_no_card_is_listed() -> None:
    """All chips vanished for a minute, by one empty answer."""
    node = SimulatedNode()
    node.run(5.0)
    node.now = IDENTIFIED_S
    node.library.outcomes["cards", None] = Answers(((), 0))
    node.look()
    empty = node.conditions
    node.library.outcomes.clear()
    node.pass_s(2.0)
    node.look()

    assert (empty, node.conditions) == (conditions(), conditions())


#: {what is short: (call, place, answer that lacks chip 5)}
SHORT: Mapping[str, tuple[str, Place, object]] = {
    "list of cards": ("cards", None, ((0, 1, 3), 0)),
    "number of chips on a card": ("device_count", (2, 0), 1),
}


@pytest.mark.parametrize("short", SHORT)
@pytest.mark.parametrize("has_new_worker", [False, True])
def test_a_chip_that_can_be_read_is_served_while_it_is_not_listed(
    short: str, *, has_new_worker: bool
) -> None:
    """Healthy chips were out of service for half a minute, by one short list."""
    method, place, answer = SHORT[short]
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes[method, place] = Answers(answer)
    node.library.codes_of[1] = (CODE,)
    if has_new_worker:
        node.start_worker()
    seen = []
    for _ in range(70):
        node.pass_s(2.0)
        node.look()
        seen.append(node.conditions)
    node.library.codes_of[5] = (CODE,)
    node.pass_s(2.0)
    node.look()

    assert seen == [conditions({1})] * 70
    assert node.conditions == conditions({1, 5})


@pytest.mark.parametrize("short", SHORT)
def test_a_chip_that_has_gone_is_out_of_service_at_once_and_not_asked_for_long(
    short: str,
) -> None:
    method, place, answer = SHORT[short]
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes[method, place] = Answers(answer)
    node.library.outcomes["codes", (2, 1)] = Fails(NOT_EXIST)
    node.pass_s(2.0)
    node.look()
    seen = node.conditions
    node.run(node.now + 2 * IDENTIFIED_S)
    node.library.places.clear()
    node.run(node.now + 2 * IDENTIFIED_S)

    assert seen == node.conditions == conditions({5})
    assert (2, 1) not in node.library.places


def test_a_chip_that_is_not_listed_has_not_gone_before_it_would_be_unhealthy() -> None:
    assert GONE_S >= UNREAD_S


def test_a_chip_that_is_listed_has_its_id_before_one_that_is_not() -> None:
    """Its card has got another number: the old one may answer for a while."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["cards", None] = Answers(((0, 1, 2), 0))
    node.library.outcomes["physical_id", (2, 1)] = Answers(7)
    node.library.codes_of[5] = (CODE,)
    node.now = IDENTIFIED_S
    node.look()

    assert node.reading is not None
    assert {fault.chip for fault in node.reading.faults} == {7}


def test_two_chips_of_one_id_cost_no_reading_while_a_third_card_is_not_listed() -> None:
    """No chip of the node was read any more, for as long as both lasted."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["cards", None] = Answers(((0, 1, 2), 0))
    node.library.outcomes["physical_id", (2, 1)] = Answers(7)
    node.library.outcomes["physical_id", (0, 0)] = Answers(2)
    node.now = IDENTIFIED_S
    node.look()

    assert (node.problem, node.conditions) == ("", conditions({5}))


def test_a_chip_has_its_new_id_though_the_next_worker_cannot_identify_it() -> None:
    """It was out of service for a minute, and one that has gone was given out."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["cards", None] = Answers(((1, 2, 3), 0))
    for device in (0, 1):
        node.library.outcomes["codes", (0, device)] = Fails(NOT_EXIST)
        node.library.outcomes["physical_id", (1, device)] = Answers(device)
    node.run(2 * IDENTIFIED_S)
    before = node.conditions
    node.start_worker()
    node.library.outcomes["logic_id", (1, 0)] = Fails(-8005)
    node.run(node.now + 5.0)

    assert before == node.conditions == conditions({2, 3})


@pytest.mark.parametrize("code", [-8005, -8006, LEFT_OUT])
def test_a_fault_told_by_an_event_counts_while_codes_cannot_be_read(code: int) -> None:
    """A chip of which an event told that it is lost was given out for 15 s more."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["codes", (2, 1)] = Fails(code)
    node.library.codes_of[5] = (CODE,)
    node.chip_reader.add_event(5, Code(code=CODE, severity=3), is_over=False)
    node.look()
    seen = [(node.reading and node.reading.faults, node.conditions)]
    node.pass_s(2.0)
    node.look()
    seen.append((node.reading and node.reading.faults, node.conditions))
    node.library.outcomes.clear()
    node.run(node.now + 5.0)
    seen.append((node.reading and node.reading.faults, node.conditions))

    fault = ChipFault(chip=5, code=f"{CODE:08X}", severity=3, count=1)
    assert seen == [((fault,), conditions({5}))] * 3


def test_events_of_a_time_in_which_no_chip_is_read_are_told_afterwards() -> None:
    node = SimulatedNode()
    node.run(5.0)
    node.library.outcomes["codes", None] = Fails(-8006)
    for _ in range(3):
        node.chip_reader.add_event(5, Code(code=CODE, severity=3), is_over=False)
        node.pass_s(2.0)
        node.look()
    before = node.reading and node.reading.faults
    node.library.outcomes.clear()
    node.pass_s(2.0)
    node.look()

    assert before == ()
    assert node.reading is not None
    assert [(fault.chip, fault.count) for fault in node.reading.faults] == [(5, 3)]


def test_another_worker_forgets_no_severity_of_a_fault() -> None:
    """A minor fault of no list took its chip out of service, if a worker was lost."""
    node = SimulatedNode()
    node.run(5.0)
    node.library.codes_of[5] = (CODE,)
    node.chip_reader.add_event(5, Code(code=CODE, severity=1), is_over=False)
    node.look()
    node.start_worker()
    node.look()
    kept = node.reading
    node.library.codes_of[5] = ()
    node.pass_s(2.0)
    node.look()
    node.library.codes_of[5] = (CODE,)
    node.pass_s(2.0)
    node.look()

    assert kept is not None
    assert node.reading is not None
    severities = [fault.severity for fault in (*kept.faults, *node.reading.faults)]
    assert severities == [1, None]
